"""API tokens: 256 random bits, shown once; what is kept is their hash, so that a stolen database lets nobody in.

A token is found by its hash, whose bytes nobody can choose: how long a look-up takes says nothing about any secret.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from muniment.authentication import scopes
from muniment.authentication.claims import invalid
from muniment.errors import ConfigurationError, InvalidInput, MunimentError
from muniment.models import Name, Principal
from muniment.ports import NewToken, StoredToken, TokenStorage

log = logging.getLogger(__name__)

PREFIX: Final = "muniment_"
"""What every secret begins with, so that people and scanners know one when they see it."""
TOUCH_SECONDS: Final = 60.0
"""How exact the last use of a token is."""

_NAME: TypeAdapter[str] = TypeAdapter(Name)
_SECRET = re.compile(PREFIX + r"[A-Za-z0-9_-]{43}")


def is_secret(text: str) -> bool:
    """Whether this is the secret of an API token, and no other credential."""
    return text.startswith(PREFIX)


def token_storage(storage: object) -> TokenStorage:
    """A storage, if it keeps tokens. Raises ConfigurationError for one of a plugin that is older than they are."""
    if not isinstance(storage, TokenStorage):
        raise ConfigurationError("This storage's plugin is older than API tokens and keeps none; upgrade it.")
    return storage


def new_token(
    user: str, groups: frozenset[str], scope: tuple[str, ...], expires_at: datetime | None
) -> tuple[str, NewToken]:
    """A fresh secret, and what is kept of it. Raises InvalidInput for a name, and for scopes, that are none."""
    for field, name in (("user", user), *(("group", group) for group in groups)):
        _check_name(field, name)
    secret = PREFIX + secrets.token_urlsafe(32)
    kept = NewToken(
        id=secrets.token_hex(6),
        digest=_digest(secret),
        user=user,
        groups=groups,
        scopes=scopes.checked(scope),
        expires_at=expires_at and expires_at.replace(microsecond=0),
    )
    return secret, kept


def state(token: StoredToken, now: datetime) -> str:
    """``active``, ``expired`` or ``revoked``."""
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "active"


class ApiTokens:
    """Checks secrets against a storage. ``clock`` says which tokens have expired."""

    def __init__(self, storage: TokenStorage, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._storage = storage
        self._clock = clock
        self._touched: dict[str, float] = {}
        self._touching: set[asyncio.Task[None]] = set()

    async def principal(self, secret: str) -> Principal:
        """Who a secret proves. Raises Unauthenticated, StorageUnavailable."""
        token = await self._storage.find_token(_digest(secret)) if _SECRET.fullmatch(secret) else None
        if token is None:
            raise invalid("There is no such API token; check that it was copied whole.")
        found = state(token, self._clock())
        if found != "active":
            raise invalid(f"The API token {token.id} is {found}; make another with muniment token create.")
        self._touch(token)
        return scopes.principal(token.user, token.groups, token.scopes)

    async def close(self) -> None:
        """Wait for what is still being noted."""
        if self._touching:
            await asyncio.wait(self._touching)

    def _touch(self, token: StoredToken) -> None:
        """Note the use of a token beside its request, unless that was done within the last minute."""
        now = time.monotonic()
        used = token.last_used_at
        lately = used is not None and 0 <= (self._clock() - used).total_seconds() < TOUCH_SECONDS
        if lately or now - self._touched.get(token.id, -TOUCH_SECONDS) < TOUCH_SECONDS:
            return
        self._touched[token.id] = now
        task = asyncio.create_task(self._noted(token.id))
        self._touching.add(task)
        task.add_done_callback(self._touching.discard)

    async def _noted(self, token_id: str) -> None:
        try:
            await self._storage.touch_token(token_id)
        except MunimentError as error:
            log.warning("the last use of API token %s was not noted: %s", token_id, error.code)
        except Exception as error:
            log.warning("the last use of API token %s was not noted: %s", token_id, type(error).__name__)


def _check_name(field: str, name: str) -> None:
    try:
        _NAME.validate_python(name)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise InvalidInput(field, problem.removeprefix("Value error, ")) from None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
