"""The ``[limits]`` table of the configuration: how much one caller may ask of a server over a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from muniment.limits import BODY_MAX

BURST_SECONDS: Final = 10
"""Unless it is set, a burst is what comes in this time."""


class LimitSettings(BaseModel):
    """How often and how much."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="how many requests of one principal are served, in the long run"
    )
    burst: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="how many of them may come at once; by default those of ten seconds"
    )
    body_bytes: Annotated[int, Field(ge=1_024, le=BODY_MAX)] = Field(
        default=BODY_MAX, description="how many bytes a request may have"
    )

    @model_validator(mode="after")
    def _check_burst(self) -> LimitSettings:
        if self.burst is not None and self.requests_per_minute is None:
            raise ValueError("burst without requests_per_minute limits nothing; set both")
        return self

    @property
    def rate(self) -> tuple[int, int] | None:
        """Requests a minute and at once, where they are limited."""
        if self.requests_per_minute is None:
            return None
        return self.requests_per_minute, self.burst or max(1, self.requests_per_minute * BURST_SECONDS // 60)

    def shown(self) -> Mapping[str, str]:
        """Every value that is set, by its key below ``limits``, as a report may show it."""
        return {key: str(value) for key, value in self.model_dump(exclude_none=True).items()}
