"""One issuer's public keys: found by its metadata, kept for a while, and fetched again when a token names a new one.

Whoever sends tokens with made-up key ids makes at most one request to the issuer every few seconds, whatever it
answers. While an issuer cannot be reached its keys stay good for an hour.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import jwt
from pydantic import TypeAdapter, ValidationError

from muniment.authentication.claims import invalid
from muniment.authentication.settings import IssuerSettings, Url
from muniment.errors import IssuerUnavailable

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 300.0
"""How long keys are used without asking whether there are others: as long as a withdrawn one is still accepted."""
STALE_SECONDS: Final = 3600.0
"""How long they are used while the issuer cannot be reached."""
COOLDOWN_SECONDS: Final = 5.0
"""The least time between two requests that a key which is not known makes."""
RETRY_SECONDS: Final = 60.0
"""The least time between two requests for others while there are keys to go on with."""
TIMEOUT_SECONDS: Final = 5.0
DISCOVERY: Final = "/.well-known/openid-configuration"

_URL: TypeAdapter[str] = TypeAdapter(Url)

Jwk = Mapping[str, Any]


class IssuerKeys:
    """The keys of one issuer; ``clock`` is in seconds, and never goes back."""

    def __init__(self, name: str, issuer: IssuerSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._issuer = issuer
        self._clock = clock
        self._keys: Sequence[Jwk] = ()
        self._made: dict[tuple[str | None, str], jwt.PyJWK] = {}
        self._fetched_at: float | None = None
        self._asked_at: float | None = None
        self._answered = False
        self._fetching: asyncio.Task[None] | None = None

    async def key(self, key_id: str | None, algorithm: str) -> jwt.PyJWK:
        """The key by its id, for one algorithm; without an id the issuer's only one.

        Raises Unauthenticated where the issuer has no such key, and IssuerUnavailable where it cannot be asked.
        """
        if not self._within(self._fetched_at, FRESH_SECONDS):
            await self._refresh(RETRY_SECONDS if self._usable else COOLDOWN_SECONDS)
        if self._usable and self._found(key_id) is None:
            await self._refresh(COOLDOWN_SECONDS)
        found = self._found(key_id) if self._usable else None
        if found is None and not self._answered:
            raise self._unavailable()
        if found is None:
            raise invalid("The token is signed by a key that its issuer does not have; sign in again.")
        return self._for_algorithm(key_id, found, algorithm)

    async def fetch(self) -> int:
        """Ask the issuer for its keys; how many there are to use. Raises IssuerUnavailable."""
        await self._refresh(0)
        if not self._answered:
            raise self._unavailable()
        return len(self._keys)

    @property
    def _usable(self) -> bool:
        return self._within(self._fetched_at, STALE_SECONDS)

    def _within(self, since: float | None, seconds: float) -> bool:
        return since is not None and self._clock() - since < seconds

    def _found(self, key_id: str | None) -> Jwk | None:
        if key_id is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((one for one in self._keys if one.get("kid") == key_id), None)

    def _for_algorithm(self, key_id: str | None, found: Jwk, algorithm: str) -> jwt.PyJWK:
        """A key that names no algorithm is used with the token's, which is one of those that are pinned."""
        if found.get("alg", algorithm) != algorithm:
            raise invalid("The token is signed by another algorithm than its key is for.")
        if (key_id, algorithm) not in self._made:
            try:
                self._made[key_id, algorithm] = jwt.PyJWK(dict(found), algorithm)
            except (jwt.PyJWTError, ValueError, TypeError):
                raise invalid(f"The token is signed by a key that cannot be used with {algorithm}.") from None
        return self._made[key_id, algorithm]

    async def _refresh(self, cooldown: float) -> None:
        """Ask the issuer unless that was done within the cooldown; whoever comes meanwhile waits for the same answer.

        A caller that is cancelled leaves the request to the others.
        """
        if self._fetching is None:
            if self._within(self._asked_at, cooldown):
                return
            self._fetching = asyncio.create_task(self._fetch())
        await asyncio.shield(self._fetching)

    async def _fetch(self) -> None:
        asked_at = self._asked_at = self._clock()
        self._answered = False
        try:
            async with asyncio.timeout(2 * TIMEOUT_SECONDS):
                keys = await asyncio.to_thread(_keys_of, self._issuer)
        except (jwt.PyJWTError, OSError, ValueError, http.client.HTTPException) as error:
            log.warning("the keys of issuer %s cannot be had: %s", self.name, " ".join(str(error).split()))
        else:
            self._keys, self._fetched_at, self._answered = keys, asked_at, True
            self._made.clear()
        finally:
            self._fetching = None

    def _unavailable(self) -> IssuerUnavailable:
        return IssuerUnavailable(
            f"Tokens of the issuer {self.name} cannot be checked now, since its keys cannot be had; try again in a "
            "moment.",
            issuer=self.name,
        )


def _keys_of(issuer: IssuerSettings) -> Sequence[Jwk]:
    """The keys that sign, in a thread. Raises what asking raises, and ValueError for an answer that has none."""
    url = issuer.jwks_url or _jwks_url(issuer.issuer)
    listed: object = _document(url).get("keys")
    keys = cast("list[object]", listed) if isinstance(listed, list) else []
    signing = [cast("Jwk", one) for one in keys if isinstance(one, dict)]
    signing = [one for one in signing if one.get("use", "sig") == "sig"]
    if not signing:
        raise ValueError(f"{url} holds no key that signs")
    return signing


def _jwks_url(issuer: str) -> str:
    """Where the issuer's own metadata says that its keys are. The metadata must be the issuer's."""
    document = _document(issuer.rstrip("/") + DISCOVERY)
    if document.get("issuer") != issuer:
        raise ValueError(f"the metadata of {issuer} is another issuer's")
    try:
        return _URL.validate_python(document.get("jwks_uri"))
    except ValidationError:
        raise ValueError(f"the metadata of {issuer} has no jwks_uri that can be trusted") from None


def _document(url: str) -> dict[str, Any]:
    """The JSON object at a URL, which follows no redirection: what it is trusted for is that it is this one's."""
    return jwt.PyJWKClient(url, cache_jwk_set=False, timeout=TIMEOUT_SECONDS).fetch_data()
