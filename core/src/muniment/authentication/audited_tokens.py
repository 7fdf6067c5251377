"""Making and ending API tokens, each with its entry in the audit trail, which the platform reads by ``token.history``.

No storage keeps a token and an entry in one step. So a secret is given away only once there are both: a token without
an entry is one that nobody can use. And a revocation counts before its entry is stored: revoking it again stores what
is missing, and nothing twice.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import NAMESPACE_URL, uuid5

from muniment.access import TOKENS_KEY
from muniment.authentication.tokens import new_token, token_storage
from muniment.errors import MunimentError
from muniment.ports import AuditDraft, Storage, StoredToken

CREATED = "token.create"
REVOKED = "token.revoke"
"""What the two entries of a token are called."""


@dataclass(frozen=True, slots=True)
class AuditedTokens:
    """Makes and ends tokens on a storage, for ``actor`` who does it through ``surface``."""

    storage: Storage
    actor: str
    surface: str

    async def create(
        self, user: str, groups: frozenset[str], scope: tuple[str, ...], expires_at: datetime | None
    ) -> tuple[str, StoredToken]:
        """A token's secret, and it as it is kept.

        Raises InvalidInput, ConfigurationError as ``tokens`` does, and StorageUnavailable, after which no secret of it
        is known to anybody.
        """
        tokens = token_storage(self.storage)
        secret, token = new_token(user, groups, scope, expires_at)
        kept = await tokens.add_token(token)
        try:
            await self.storage.record(self._entry(kept, CREATED, 1, _set_fields(kept)))
        except BaseException:
            with suppress(MunimentError):
                await tokens.revoke_token(token.id)
            raise
        return secret, kept

    async def revoke(self, token_id: str) -> StoredToken | None:
        """The token, revoked; None where there is none. Raises ConfigurationError, StorageUnavailable."""
        revoked = await token_storage(self.storage).revoke_token(token_id)
        if revoked is not None:
            await self.storage.record(self._entry(revoked, REVOKED, 2, ("revoked",)))
        return revoked

    def _entry(self, token: StoredToken, action: str, version: int, changed: tuple[str, ...]) -> AuditDraft:
        """The one entry of its kind that a token has."""
        return AuditDraft(
            id=str(uuid5(NAMESPACE_URL, f"muniment:{action}:{token.id}")),
            actor=self.actor,
            agent=None,
            surface=self.surface,
            action=action,
            memory_id=None,
            project_id=None,
            version=version,
            changed=changed,
            scope_key=TOKENS_KEY,
            details={
                "token": token.id,
                "user": token.user,
                "groups": sorted(token.groups),
                "scopes": list(token.scopes),
                "expires_at": token.expires_at and token.expires_at.isoformat(),
            },
        )


def _set_fields(token: StoredToken) -> tuple[str, ...]:
    """What was said of a new token."""
    said = {"user": True, "groups": bool(token.groups), "scopes": True, "expires_at": token.expires_at is not None}
    return tuple(name for name, is_said in said.items() if is_said)
