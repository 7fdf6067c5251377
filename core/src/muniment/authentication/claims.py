"""The claims of a verified token as a principal: how an issuer's users and groups are spelled here.

A user is ``ISSUER:SUBJECT`` and a group ``ISSUER:GROUP``, ISSUER being the issuer's name in the configuration, which
holds no colon: so no two issuers ever have a user or a group in common. See ``docs/adr/0013-authentication.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from muniment import limits
from muniment.authentication.settings import IssuerSettings
from muniment.errors import INSUFFICIENT_SCOPE, INVALID_TOKEN, AccessDenied, Unauthenticated
from muniment.models import Agent, Name, Principal

Claims = Mapping[str, Any]

_NAME: TypeAdapter[str] = TypeAdapter(Name)
_MISSING = object()


def principal(name: str, issuer: IssuerSettings, claims: Claims) -> Principal:
    """Who calls, by the verified claims of a token of the issuer called ``name``.

    Raises Unauthenticated where they say it in no way that can be used, and AccessDenied where the token has none of
    the scopes that let its holder in.
    """
    scopes = _scopes(issuer, claims)
    agent = _agent(issuer, claims)
    platform = issuer.platform_scope is not None and issuer.platform_scope in scopes
    if agent is not None and platform:
        raise invalid("The token says that its holder is an agent and the platform, which nobody may be; ask for one.")
    may_write = issuer.write_scope is None or issuer.write_scope in scopes
    if not may_write and issuer.read_scope is not None and issuer.read_scope not in scopes:
        wanted = f"{issuer.read_scope} {issuer.write_scope}"
        raise AccessDenied(
            f"The token has none of the scopes {wanted}; ask for a token with one of them.",
            error=INSUFFICIENT_SCOPE,
            scope=wanted,
        )
    return Principal(
        user=_user(name, issuer, claims),
        groups=_groups(name, issuer, claims),
        agent=agent,
        platform=platform,
        read_only=not may_write,
        write_scope=None if may_write else issuer.write_scope,
    )


def invalid(message: str) -> Unauthenticated:
    """The refusal of credentials that were sent and prove nobody."""
    return Unauthenticated(message, error=INVALID_TOKEN)


def missing(*claims: str) -> Unauthenticated:
    """The refusal of a token without claims that it needs."""
    them = "them" if len(claims) > 1 else "it"
    lacked = " and ".join(f"no claim {claim}" for claim in claims)
    return invalid(f"The token has {lacked}; have its issuer give {them}.")


def _user(name: str, issuer: IssuerSettings, claims: Claims) -> str:
    subject = _at(issuer.subject_claim, claims)
    if subject is _MISSING or subject is None:
        raise missing(_path(issuer.subject_claim))
    spelled = f"{name}:{subject}"
    if not isinstance(subject, str) or not subject.strip() or not _is_name(spelled):
        longest = limits.NAME_MAX - len(name) - 1
        raise invalid(
            f"The token's claim {_path(issuer.subject_claim)} names no user; have its issuer give a text of 1 to "
            f"{longest} characters without control characters."
        )
    return spelled


def _groups(name: str, issuer: IssuerSettings, claims: Claims) -> frozenset[str]:
    """The groups; what is no name is left out, since no grant can hold it."""
    found = _MISSING if issuer.groups_claim is None else _at(issuer.groups_claim, claims)
    if found is _MISSING or found is None:
        return frozenset()
    listed = _texts(found)
    if listed is None:
        raise invalid(
            f"The token's claim {_path(issuer.groups_claim or ())} is no list of names of groups; have its issuer give "
            "one."
        )
    return frozenset(spelled for group in listed if group.strip() and _is_name(spelled := f"{name}:{group}"))


def _agent(issuer: IssuerSettings, claims: Claims) -> Agent | None:
    found = _MISSING if issuer.agent_claim is None else _at(issuer.agent_claim, claims)
    if found is _MISSING or found is None:
        return None
    try:
        return Agent.parse(found)
    except ValueError as error:
        raise invalid(
            f"The token's claim {_path(issuer.agent_claim or ())} {error}; have its issuer correct it."
        ) from None


def _scopes(issuer: IssuerSettings, claims: Claims) -> frozenset[str]:
    """Separated by spaces, as RFC 8693 (section 4.2) has them, or as a list, as some providers do."""
    found = _at(issuer.scope_claim, claims)
    if isinstance(found, str):
        return frozenset(found.split())
    return frozenset(_texts(found) or ())


def _texts(value: object) -> Sequence[str] | None:
    """A list of texts, if it is one."""
    if not isinstance(value, list):
        return None
    listed = cast("list[object]", value)
    texts = [one for one in listed if isinstance(one, str)]
    return texts if len(texts) == len(listed) else None


def _at(path: Sequence[str], claims: Claims) -> object:
    found: object = claims
    for name in path:
        if not isinstance(found, Mapping) or name not in found:
            return _MISSING
        found = cast("Mapping[str, object]", found)[name]
    return found


def _path(path: Sequence[str]) -> str:
    return ".".join(path)


def _is_name(text: str) -> bool:
    try:
        _NAME.validate_python(text)
    except ValidationError:
        return False
    return True
