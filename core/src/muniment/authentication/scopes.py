"""What API tokens may: ``read``, ``write``, ``agent=NAME/INSTANCE`` and ``platform``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from muniment.errors import InvalidInput
from muniment.models import WRITE_SCOPE, Agent, Name, Principal

READ: Final = "read"
WRITE: Final = WRITE_SCOPE
PLATFORM: Final = "platform"
AGENT: Final = "agent="
"""Is followed by an agent instance."""

_KNOWN = f"{READ}, {WRITE}, {AGENT}NAME/INSTANCE and {PLATFORM}"


def checked(scopes: Iterable[str]) -> tuple[str, ...]:
    """The scopes of a new token, each once. Raises InvalidInput."""
    found = tuple(dict.fromkeys(scopes))
    agents = [scope for scope in found if scope.startswith(AGENT)]
    for scope in found:
        if scope not in (READ, WRITE, PLATFORM) and scope not in agents:
            raise InvalidInput("scope", f"{scope[:100]!r} is none; the scopes are {_KNOWN}")
    if READ not in found and WRITE not in found:
        raise InvalidInput("scope", f"a token needs {READ}, or {WRITE}, which includes it")
    if len(agents) > 1:
        raise InvalidInput("scope", "a token is of one agent instance; make another for another one")
    if agents and PLATFORM in found:
        raise InvalidInput("scope", "an agent that were the platform could write what only the platform records")
    for scope in agents:
        _agent(scope)
    return found


def principal(user: Name, groups: frozenset[Name], scopes: Sequence[str]) -> Principal:
    """Who calls by a token of ``user``. What it does not name it does not allow."""
    return Principal(
        user=user,
        groups=groups,
        agent=next((_agent(scope) for scope in scopes if scope.startswith(AGENT)), None),
        platform=PLATFORM in scopes,
        read_only=WRITE not in scopes,
    )


def _agent(scope: str) -> Agent:
    try:
        return Agent.parse(scope.removeprefix(AGENT))
    except ValueError as error:
        raise InvalidInput("scope", f"{AGENT[:-1]} {error}") from None
