"""``muniment.ports.TokenStorage`` on PostgreSQL: each method is one statement of ``tokens.sql``."""

from __future__ import annotations

from collections.abc import Sequence

from muniment.errors import StorageUnavailable
from muniment.ports import NewToken, Position, StoredToken
from muniment_storage_postgres import records
from muniment_storage_postgres.database import Database
from muniment_storage_postgres.records import Row


class PostgresTokens:
    """The tokens' part of the storage."""

    @property
    def _database(self) -> Database:
        raise NotImplementedError

    async def add_token(self, token: NewToken) -> StoredToken:
        """At the server's time."""
        parameters = {
            "id": token.id,
            "digest": token.digest,
            "user": token.user,
            "groups": sorted(token.groups),
            "scopes": list(token.scopes),
            "expires_at": token.expires_at,
        }
        row = await self._database.change("add_token", parameters)
        if row is None:
            raise StorageUnavailable(f"The token {token.id} was not stored; make another one.")
        return _stored(row)

    async def find_token(self, digest: str) -> StoredToken | None:
        """By its hash."""
        row = await self._database.row("find_token", {"digest": digest})
        return _stored(row) if row else None

    async def list_tokens(self, *, after: Position | None, limit: int) -> Sequence[StoredToken]:
        """Newest first."""
        parameters = {**records.of_position(after), "limit": limit}
        return [_stored(row) for row in await self._database.rows("list_tokens", parameters)]

    async def revoke_token(self, token_id: str) -> StoredToken | None:
        """At the server's time, once."""
        row = await self._database.change("revoke_token", {"id": token_id})
        return _stored(row) if row else None

    async def touch_token(self, token_id: str) -> None:
        """By max."""
        await self._database.change("touch_token", {"id": token_id})


def _stored(row: Row) -> StoredToken:
    id_, user, groups, scopes, *times = row
    return StoredToken(id_, user, frozenset(groups), tuple(scopes), *times)
