"""JWTs of configured issuers. Which issuer a token says it is from decides by which keys it is checked, and nothing
else is believed before it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import jwt

from muniment.authentication import claims, refused_jwts
from muniment.authentication.keys import IssuerKeys
from muniment.authentication.settings import IssuerSettings
from muniment.errors import MunimentError
from muniment.models import Principal

REQUIRED: Final = ["exp", "iss", "aud"]
"""Claims without which a token says too little."""

_UNVERIFIED: Final[Any] = {"verify_signature": False}
_STRICT: Final[Any] = {"require": REQUIRED, "enforce_minimum_key_length": True}


class Issuers:
    """The configured issuers, by what their tokens call them. ``clock`` is that of ``IssuerKeys``."""

    def __init__(self, settings: Mapping[str, IssuerSettings], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._by_url = {one.issuer: (name, one, IssuerKeys(name, one, clock=clock)) for name, one in settings.items()}

    @property
    def keys(self) -> tuple[IssuerKeys, ...]:
        """The keys of each."""
        return tuple(keys for _, _, keys in self._by_url.values())

    async def principal(self, token: str) -> Principal:
        """Who a token proves. Raises Unauthenticated, AccessDenied, IssuerUnavailable."""
        try:
            unverified = jwt.decode_complete(token, options=_UNVERIFIED)
            issuer_url = unverified["payload"].get("iss")
        except jwt.PyJWTError as error:
            raise refused_jwts.unreadable(token, error) from None
        if not isinstance(issuer_url, str) or issuer_url not in self._by_url:
            raise refused_jwts.of_no_issuer(unverified["payload"], self._by_url)
        name, issuer, keys = self._by_url[issuer_url]
        try:
            return await self._proved(token, unverified, name, issuer, keys)
        except MunimentError as refusal:
            # For the log: its holder is not told what this server calls the issuer.
            refusal.add_note(f"Issuer: {name}.")
            raise

    async def _proved(
        self, token: str, unverified: Mapping[str, Any], name: str, issuer: IssuerSettings, keys: IssuerKeys
    ) -> Principal:
        """Who a token of this issuer proves."""
        header = unverified["header"]
        algorithm = header.get("alg")
        if algorithm not in issuer.algorithms:
            raise refused_jwts.of_another_algorithm(issuer)
        key = await keys.key(header.get("kid"), algorithm)
        try:
            verified = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=issuer.audience,
                issuer=issuer.issuer,
                leeway=issuer.leeway,
                options=_STRICT,
            )
        except jwt.PyJWTError as error:
            raise refused_jwts.refused(error, issuer, unverified["payload"], REQUIRED) from None
        return claims.principal(name, issuer, verified)
