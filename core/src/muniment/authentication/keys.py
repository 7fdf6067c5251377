"""One issuer's public keys: found by its metadata, kept for a while, and fetched again when a token names a new one.

Whoever sends tokens with made-up key ids makes a few requests to the issuer at once, and then one every few seconds.
That a key is not there is said of a token only after keys that were asked for since it came; until they are, whether it
is good is not known. While an issuer cannot be reached its keys stay good for an hour.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import math
import time
from collections import OrderedDict
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
"""The time between two requests for keys that are not known, in the long run and whatever is sent; and how long it
counts that the issuer does not have one."""
BURST: Final = 4
"""How many of them there may be at once, so that a key which was made just now is found behind one that was made up."""
SOUGHT_KEPT: Final = 256
"""Key ids that were not found whose first request is remembered."""
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
        self._begun = 0
        self._answered = 0
        """Requests that were begun, and the number of the last one, if that one had an answer; else 0."""
        self._failure = ""
        self._fetching: asyncio.Task[None] | None = None
        self._sought: OrderedDict[str | None, int] = OrderedDict()
        """How many requests were begun when a key was asked for first that was not there."""
        self._spent_until = -math.inf
        """When nothing of the burst will be used, if nobody asks until then."""

    async def key(self, key_id: str | None, algorithm: str) -> jwt.PyJWK:
        """The key by its id, for one algorithm; without an id the issuer's only one.

        Raises Unauthenticated where the issuer has no such key, and IssuerUnavailable where it cannot be asked, or was
        asked too often of late.
        """
        if self._found(key_id) is None:
            self._note(key_id, self._begun)
        if not self._within(self._fetched_at, FRESH_SECONDS):
            await self._refresh(RETRY_SECONDS if self._usable else COOLDOWN_SECONDS)
        # What was under way as it came may have been answered before the key was there: then another one is needed.
        for _ in range(2):
            if self._usable and self._found(key_id) is None and not self._is_absent(key_id):
                await self._look_again()
        found = self._found(key_id) if self._usable else None
        if found is not None:
            return self._for_algorithm(key_id, found, algorithm)
        if not self._is_absent(key_id):
            raise self._unavailable()
        if key_id is None and len(self._keys) > 1:
            raise invalid(
                "The token does not say in kid by which key it is signed, and its issuer does not have one alone; have "
                "the issuer say it."
            )
        raise invalid("The token is signed by a key (kid) that its issuer does not have, or no more; sign in again.")

    async def fetch(self) -> int:
        """Ask the issuer for its keys; how many there are to use. Raises IssuerUnavailable."""
        await self._refresh(0)
        if not self._answered:
            raise self._unavailable()
        return len(self._keys)

    @property
    def failure(self) -> str:
        """Why the last request had no answer; empty where it had one."""
        return self._failure

    @property
    def _usable(self) -> bool:
        return self._within(self._fetched_at, STALE_SECONDS)

    def _within(self, since: float | None, seconds: float) -> bool:
        return since is not None and self._clock() - since < seconds

    def _found(self, key_id: str | None) -> Jwk | None:
        if key_id is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((one for one in self._keys if one.get("kid") == key_id), None)

    def _note(self, key_id: str | None, begun: int) -> None:
        self._sought.setdefault(key_id, begun)
        if len(self._sought) > SOUGHT_KEPT:
            self._sought.popitem(last=False)

    def _is_absent(self, key_id: str | None) -> bool:
        """Whether the keys, which have no such one, were asked for lately, and since a token of it came first."""
        asked_since = self._sought.get(key_id, self._begun) < self._answered
        return asked_since and self._within(self._fetched_at, COOLDOWN_SECONDS)

    def _for_algorithm(self, key_id: str | None, found: Jwk, algorithm: str) -> jwt.PyJWK:
        """A key that names no algorithm is used with the token's, which is one of those that are pinned."""
        if found.get("alg", algorithm) != algorithm:
            raise invalid(
                "The token is signed by another algorithm (alg) than its key is for; have its issuer sign by that one."
            )
        if (key_id, algorithm) not in self._made:
            try:
                self._made[key_id, algorithm] = jwt.PyJWK(dict(found), algorithm)
            except (jwt.PyJWTError, ValueError, TypeError):
                raise invalid(
                    f"The token is signed by a key that cannot be used with {algorithm}; have its issuer correct alg "
                    "or kid."
                ) from None
        return self._made[key_id, algorithm]

    async def _refresh(self, cooldown: float) -> None:
        """Ask the issuer unless that was done within the cooldown; who comes meanwhile waits for the same answer."""
        if self._fetching is not None or not self._within(self._asked_at, cooldown):
            await self._answer()

    async def _look_again(self) -> None:
        """Ask for a key that may be there by now, if the burst allows it; of an issuer that is away, less often."""
        if self._fetching is None:
            if not self._answered:
                await self._refresh(COOLDOWN_SECONDS)
                return
            if self._wait() > 0:
                return
            self._spent_until = max(self._spent_until, self._clock()) + COOLDOWN_SECONDS
        await self._answer()

    async def _answer(self) -> None:
        """The issuer's answer, for all who wait; a caller that is cancelled leaves the request to the others."""
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch())
        await asyncio.shield(self._fetching)

    async def _fetch(self) -> None:
        asked_at = self._asked_at = self._clock()
        self._begun += 1
        self._answered, self._failure = 0, ""
        try:
            async with asyncio.timeout(2 * TIMEOUT_SECONDS):
                keys = await asyncio.to_thread(_keys_of, self._issuer)
        except TimeoutError:
            self._failure = f"no answer within {2 * TIMEOUT_SECONDS:g} s"
        except ValueError as error:
            self._failure = " ".join(str(error).split())
        else:
            for one in self._keys:
                # One that is withdrawn is known to be gone, whoever sends it next.
                if isinstance(kid := one.get("kid"), str):
                    self._note(kid, 0)
            self._keys, self._fetched_at, self._answered = keys, asked_at, self._begun
            self._made.clear()
        finally:
            self._fetching = None
        if self._failure:
            log.warning("the keys of issuer %s cannot be had: %s", self.name, self._failure)

    def _wait(self) -> float:
        """Seconds until the issuer is asked for a key that is not known; not more than 0 where it would be now."""
        now = self._clock()
        if self._answered:
            return self._spent_until - (BURST - 1) * COOLDOWN_SECONDS - now
        return (now if self._asked_at is None else self._asked_at) + COOLDOWN_SECONDS - now

    def _unavailable(self) -> IssuerUnavailable:
        wait = max(1, math.ceil(self._wait()))
        why = "its issuer was asked for new keys too often of late" if self._answered else "its keys cannot be had"
        refusal = IssuerUnavailable(
            f"Tokens of the issuer {self.name} cannot be checked now, since {why}; keep the token and try again in "
            f"{wait} s.",
            issuer=self.name,
            retry_after=wait,
        )
        if self._failure:
            # For the log: it names hosts of the server's own network.
            refusal.add_note(f"Cause: {self._failure}.")
        return refusal


def _keys_of(issuer: IssuerSettings) -> Sequence[Jwk]:
    """The keys that sign, in a thread. Raises ValueError, with the URL and the cause, where there are none."""
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
    try:
        return jwt.PyJWKClient(url, cache_jwk_set=False, timeout=TIMEOUT_SECONDS).fetch_data()
    except (jwt.PyJWTError, OSError, ValueError, http.client.HTTPException) as error:
        cause = error.__cause__ or error
        raise ValueError(f"{url}: {str(cause) or type(cause).__name__}") from None
