"""What an operation is: its name, models, flags and description, and how its input is parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from muniment.inputs import Input, refusal
from muniment.models import Principal


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. ``touches`` says what its access is judged by: a memory, a project or the caller alone."""

    name: str
    title: str
    description: str
    input: type[Input]
    output: type[BaseModel]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    touches: Literal["memory", "project", "caller"] = "memory"
    audience: Literal["user", "agent", "platform"] = "user"

    def serves(self, principal: Principal) -> bool:
        """Whether this principal may call it at all."""
        if principal.read_only and not self.read_only:
            return False
        match self.audience:
            case "agent":
                return principal.agent is not None
            case "platform":
                return principal.platform
            case "user":
                return True

    def parse(self, payload: Mapping[str, Any]) -> Input:
        """The validated input. Raises InvalidInput, naming the first field that is wrong and its limit."""
        try:
            return self.input.model_validate(dict(payload))
        except ValidationError as error:
            raise refusal(error) from None
