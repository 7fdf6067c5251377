"""What a storage keeps of API tokens: never a secret, only its hash, and what it lets its holder do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from muniment.ports.reading import Position


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to keep. ``id`` and ``digest`` (the SHA-256 of the secret, in hexadecimal) are fresh.

    ``expires_at`` is a whole second. What ``scopes`` mean is ``muniment.authentication``'s.
    """

    id: str
    digest: str
    user: str
    groups: frozenset[str]
    scopes: tuple[str, ...]
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token as it is kept; times are the storage's, but for ``expires_at``. Whether it is still good is core's."""

    id: str
    user: str
    groups: frozenset[str]
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


@runtime_checkable
class TokenStorage(Protocol):
    """Keeps API tokens, also those that are over."""

    async def add_token(self, token: NewToken) -> StoredToken:
        """Keep a token; it as it is kept."""
        ...

    async def find_token(self, digest: str) -> StoredToken | None:
        """The token whose secret has this hash, compared whole; also one that is revoked or expired."""
        ...

    async def list_tokens(self, *, after: Position | None, limit: int) -> Sequence[StoredToken]:
        """All tokens by ``created_at`` descending, then ``id`` ascending."""
        ...

    async def revoke_token(self, token_id: str) -> StoredToken | None:
        """The token, revoked; None where there is none. One that was revoked before keeps the time of that.

        Once this has answered, every client's ``find_token`` says so.
        """
        ...

    async def touch_token(self, token_id: str) -> None:
        """Note that the token is being used. ``last_used_at`` never goes back, and nothing else of it changes.

        Does nothing where there is no such token. What else is asked of the storage does not wait for it.
        """
        ...
