"""``muniment.ports.TokenStorage`` on MongoDB: one document for each token, found by the hash of its secret."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo import ReturnDocument
from pymongo.asynchronous.collection import AsyncCollection

from muniment.ports import NewToken, Position, StoredToken
from muniment_storage_mongo import projects
from muniment_storage_mongo.database import Database, Document
from muniment_storage_mongo.records import literal
from muniment_storage_mongo.schema import API_TOKENS


class MongoTokens:
    """The tokens' part of the storage."""

    @property
    def _database(self) -> Database:
        raise NotImplementedError

    @property
    def _tokens(self) -> AsyncCollection[Document]:
        return self._database.collection(API_TOKENS)

    async def add_token(self, token: NewToken) -> StoredToken:
        """At the server's time."""
        document = {
            "_id": token.id,
            "digest": token.digest,
            "user": token.user,
            "groups": sorted(token.groups),
            "scopes": list(token.scopes),
            "expires_at": token.expires_at,
            "last_used_at": None,
            "revoked_at": None,
        }
        stamped = [{"$replaceWith": {"$mergeObjects": [literal(document), {"created_at": "$$NOW"}]}}]
        made: Document | None = await self._database.write(
            lambda: self._tokens.find_one_and_update(
                {"_id": token.id}, stamped, upsert=True, return_document=ReturnDocument.AFTER
            )
        )
        assert made is not None  # it was inserted
        return _stored(made)

    async def find_token(self, digest: str) -> StoredToken | None:
        """By its hash."""
        found = await self._database.read(lambda: self._tokens.find_one({"digest": digest}))
        return _stored(found) if found else None

    async def list_tokens(self, *, after: Position | None, limit: int) -> Sequence[StoredToken]:
        """Newest first."""
        condition = projects.after(after)
        found = await self._database.read(
            lambda: self._tokens.find(condition).sort(projects.NEWEST_FIRST).limit(limit).to_list()
        )
        return [_stored(one) for one in found]

    async def revoke_token(self, token_id: str) -> StoredToken | None:
        """At the server's time, once."""
        revoked = [{"$set": {"revoked_at": {"$ifNull": ["$revoked_at", "$$NOW"]}}}]
        found: Document | None = await self._database.write(
            lambda: self._tokens.find_one_and_update({"_id": token_id}, revoked, return_document=ReturnDocument.AFTER)
        )
        return _stored(found) if found else None

    async def touch_token(self, token_id: str) -> None:
        """By max."""
        touched = [{"$set": {"last_used_at": {"$max": ["$last_used_at", "$$NOW"]}}}]
        await self._database.write(lambda: self._tokens.update_one({"_id": token_id}, touched))


def _stored(document: Document) -> StoredToken:
    return StoredToken(
        id=document["_id"],
        user=document["user"],
        groups=frozenset(document["groups"]),
        scopes=tuple(document["scopes"]),
        created_at=document["created_at"],
        expires_at=document["expires_at"],
        last_used_at=document["last_used_at"],
        revoked_at=document["revoked_at"],
    )
