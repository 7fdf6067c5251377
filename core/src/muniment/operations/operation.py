"""What an operation is: its name, models, flags and description, and how its input is parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from muniment.errors import INSUFFICIENT_SCOPE, AccessDenied
from muniment.inputs import Input, refusal
from muniment.models import WRITE_SCOPE, Principal

_CALLERS: Final = {"agent": "an agent's own principal", "platform": "the platform's principal"}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. ``touches`` says what its access is judged by: a memory, a project or the caller alone.

    ``since`` is the contract version that it came with: a plugin of an older one may lack what it needs, and is not
    judged by it.
    """

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
    since: str = "1.0"

    def serves(self, principal: Principal) -> bool:
        """Whether this principal may call it at all."""
        return self._is_for(principal) and not self._is_beyond(principal)

    def is_within_reach(self, principal: Principal) -> bool:
        """Whether it serves this principal, or would with a scope that the issuer of its credentials has to give."""
        return self._is_for(principal) and (not self._is_beyond(principal) or principal.write_scope is not None)

    def not_served(self, principal: Principal) -> AccessDenied:
        """The refusal of a principal that it does not serve.

        Its ``details`` say ``insufficient_scope`` where other credentials of the same caller would do, and by which
        scope, where there is one.
        """
        if not self._is_beyond(principal):
            return AccessDenied(f"{self.name} is for {_CALLERS[self.audience]}; use its credentials.")
        scope = principal.write_scope
        lacks = f"lack the scope {scope or WRITE_SCOPE}"
        lacking = f"{self.name} changes something, and these credentials may only read: they {lacks}"
        if not self._is_for(principal):
            whose = _CALLERS[self.audience]
            return AccessDenied(f"{lacking}, and are not those of {whose}; use such ones, with that scope.")
        if scope is None:
            remedy = f"use credentials with it (muniment token create --scope {WRITE_SCOPE})"
            return AccessDenied(f"{lacking}; {remedy}.", error=INSUFFICIENT_SCOPE)
        return AccessDenied(f"{lacking}; ask for a token with it.", error=INSUFFICIENT_SCOPE, scope=scope)

    def _is_beyond(self, principal: Principal) -> bool:
        return principal.read_only and not self.read_only

    def _is_for(self, principal: Principal) -> bool:
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
