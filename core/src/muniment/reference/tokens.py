"""API tokens in memory: ``muniment.ports.TokenStorage``, each rule of it a method that a mutant can break."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from muniment.ports import NewToken, Position, StoredToken
from muniment.reference.base import Base
from muniment.reference.rows import ReferenceData, TokenRow


class ReferenceTokens(Base):
    """The tokens' part of the reference storage."""

    data: ReferenceData

    async def add_token(self, token: NewToken) -> StoredToken:
        """At the storage's time."""
        await self.pause()
        stored = StoredToken(
            id=token.id,
            user=token.user,
            groups=token.groups,
            scopes=token.scopes,
            created_at=self.clock(),
            expires_at=token.expires_at,
        )
        self.keep(TokenRow(token.digest, stored))
        return stored

    async def find_token(self, digest: str) -> StoredToken | None:
        """By its hash."""
        await self.pause()
        rows = self.data.tokens.values()
        return next((row.token for row in rows if self.is_of(row, digest)), None)

    async def list_tokens(self, *, after: Position | None, limit: int) -> Sequence[StoredToken]:
        """Newest first."""
        await self.pause()
        tokens = sorted((row.token for row in self.data.tokens.values()), key=lambda one: one.id)
        tokens.sort(key=lambda one: one.created_at, reverse=True)
        return [one for one in tokens if after is None or self.is_after(one, after)][:limit]

    async def revoke_token(self, token_id: str) -> StoredToken | None:
        """At the storage's time, once."""
        await self.pause()
        row = self.data.tokens.get(token_id)
        if row is None:
            return None
        self.keep(replace(row, token=self.revoked(row.token, self.clock())))
        return self.data.tokens[token_id].token

    async def touch_token(self, token_id: str) -> None:
        """At the storage's time."""
        await self.pause()
        row = self.data.tokens.get(token_id)
        if row is not None:
            self.keep(replace(row, token=self.touched(row.token, self.clock())))

    def keep(self, row: TokenRow) -> None:
        """Store a row."""
        self.data.tokens[row.token.id] = row

    def is_of(self, row: TokenRow, digest: str) -> bool:
        """Whether a token's secret has this hash."""
        return row.digest == digest

    def is_after(self, token: StoredToken, position: Position) -> bool:
        """Whether a token comes after the position."""
        older = token.created_at < position.created_at
        return older or (token.created_at == position.created_at and token.id > position.id)

    def revoked(self, token: StoredToken, now: datetime) -> StoredToken:
        """A token once it is revoked."""
        return replace(token, revoked_at=token.revoked_at or now)

    def touched(self, token: StoredToken, now: datetime) -> StoredToken:
        """A token once it is used."""
        return replace(token, last_used_at=max(token.last_used_at or now, now))
