"""The ``[auth]`` table of the configuration: whose tokens are accepted, and what their claims mean.

An issuer is known by its name in the configuration, and so are its users and groups: see ``claims``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Final, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448"
]
"""What a token may be signed by: a private key, whose public one checks it. A shared secret is none of these."""
LEEWAY_MAX: Final = 120
LEEWAY: Final = 30
"""Seconds that the clocks of an issuer and of this machine may differ."""


AN_ISSUER: Final = "https://login.example.com"
A_SERVER: Final = "https://memory.example.com"


def _parsed(value: str, example: str) -> SplitResult:
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts = host = None
    if parts is None or not host or parts.scheme not in ("http", "https") or parts.fragment or parts.username:
        raise ValueError(f"must be a URL such as {example}")
    return parts


def _url(value: str, example: str) -> str:
    """What is sent to this URL, and what it answers, nobody on the way reads or changes: it is of https, or of http
    within this machine."""
    parts = _parsed(value, example)
    if parts.scheme == "http" and not is_local(parts.hostname or ""):
        raise ValueError(
            "must begin with https://, since whoever is on the way of http:// could read and change what is sent"
        )
    return value


def is_local(host: str) -> bool:
    """Whether a host is this machine, by its name or its address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _base(value: str) -> str:
    parts = _parsed(_url(value, A_SERVER), A_SERVER)
    if parts.path.strip("/") or parts.query:
        raise ValueError(f"must be a URL without a path, such as {A_SERVER}")
    return value.rstrip("/")


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


Url = Annotated[str, AfterValidator(partial(_url, example=AN_ISSUER))]
Text = Annotated[str, StringConstraints(min_length=1)]
ScopeToken = Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$")]
"""One scope, as RFC 6749 (section 3.3) spells it."""
ClaimPath = Annotated[tuple[Text, ...], BeforeValidator(_several), Field(min_length=1)]
"""A claim by its name, or a claim within another one by the names on the way."""


class IssuerSettings(BaseModel):
    """One OpenID provider, or another issuer of JWTs, whose tokens are accepted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: Url = Field(description="who issues the tokens, exactly as their claim iss says")
    audience: Annotated[tuple[Text, ...], BeforeValidator(_several), Field(min_length=1)] = Field(
        description="whom its tokens are for: one of these must be in their claim aud"
    )
    jwks_url: Url | None = Field(default=None, description="where its keys are; by default its own metadata says it")
    algorithms: Annotated[tuple[Algorithm, ...], BeforeValidator(_several), Field(min_length=1)] = Field(
        default=("RS256",), description="how its tokens may be signed"
    )
    leeway: Annotated[int, Field(ge=0, le=LEEWAY_MAX)] = Field(
        default=LEEWAY, description="seconds by which its clock and this machine's may differ"
    )
    subject_claim: ClaimPath = Field(default=("sub",), description="the claim that says who its user is")
    groups_claim: ClaimPath | None = Field(default=None, description="the claim that lists its user's groups")
    agent_claim: ClaimPath | None = Field(
        default=None, description="the claim that says which agent instance calls, as NAME/INSTANCE"
    )
    scope_claim: ClaimPath = Field(default=("scope",), description="the claim that holds a token's scopes")
    read_scope: ScopeToken | None = Field(
        default=None, description="the scope by which one may read; write_scope includes it"
    )
    write_scope: ScopeToken | None = Field(default=None, description="the scope without which nothing may be changed")
    platform_scope: ScopeToken | None = Field(
        default=None, description="the scope by which the caller is the platform that agents run on"
    )

    @model_validator(mode="after")
    def _check_scopes(self) -> IssuerSettings:
        if self.read_scope is not None and self.write_scope is None:
            raise ValueError("read_scope without write_scope would let every reader write; set both")
        given = [one for one in (self.read_scope, self.write_scope, self.platform_scope) if one is not None]
        if len(set(given)) < len(given):
            raise ValueError("read_scope, write_scope and platform_scope must differ")
        return self


_ISSUER_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


def _names(value: Mapping[str, IssuerSettings]) -> Mapping[str, IssuerSettings]:
    for name in value:
        if not _ISSUER_NAME.fullmatch(name):
            raise ValueError("an issuer's name must be 1 to 32 of a-z, 0-9 and -, such as corp")
    by_url: dict[str, str] = {}
    for name, one in value.items():
        if one.issuer in by_url:
            raise ValueError(f"{by_url[one.issuer]} and {name} are the same issuer; keep one, with both audiences")
        by_url[one.issuer] = name
    return value


class AuthSettings(BaseModel):
    """Who may call over a network."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, AfterValidator(_base)] | None = Field(
        default=None, description="where clients reach this server from outside, such as https://memory.example.com"
    )
    tokens: bool = Field(default=True, description="whether API tokens, made by muniment token create, are accepted")
    issuers: Annotated[dict[str, IssuerSettings], AfterValidator(_names)] = Field(
        default_factory=dict[str, IssuerSettings], description="a table of its own for each issuer, by a short name"
    )

    @model_validator(mode="after")
    def _check_anybody(self) -> AuthSettings:
        if not self.tokens and not self.issuers:
            raise ValueError("no API tokens and no issuer let nobody in; set tokens = true, or name an issuer")
        return self

    def refusing(self, resource: str) -> list[str]:
        """The issuers none of whose audiences is the resource that clients are told to ask them for."""
        return [name for name, one in sorted(self.issuers.items()) if resource not in one.audience]

    def shown(self) -> Mapping[str, str]:
        """Every value that is set, by its key below ``auth``, as a report may show it. None of them is a secret."""
        shown = {"url": self.url or "", "tokens": str(self.tokens).lower()}
        for name, one in sorted(self.issuers.items()):
            for key, value in one.model_dump(exclude_none=True).items():
                text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
                shown[f"issuers.{name}.{key}"] = text
        return shown


NOBODY_IS_ASKED: Final = AuthSettings()
"""What ``auth = "none"`` is: whoever reaches an address that only this machine does is the configured caller."""
