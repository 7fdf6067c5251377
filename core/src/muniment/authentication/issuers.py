"""JWTs of configured issuers. Which issuer a token says it is from decides by which keys it is checked, and nothing
else is believed before it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import jwt

from muniment.authentication import claims
from muniment.authentication.claims import invalid
from muniment.authentication.keys import IssuerKeys
from muniment.authentication.settings import IssuerSettings
from muniment.errors import MunimentError, Unauthenticated
from muniment.models import Principal

REQUIRED: Final = ["exp", "iss", "aud"]
"""Claims without which a token says too little."""

_UNVERIFIED: Final[Any] = {"verify_signature": False}
_STRICT: Final[Any] = {"require": REQUIRED, "enforce_minimum_key_length": True}

_REASONS: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
    (jwt.ExpiredSignatureError, "The token has expired; sign in again."),
    (jwt.ImmatureSignatureError, "The token is not valid yet; check the clocks of its issuer and of this server."),
    (jwt.InvalidAudienceError, "The token is for another audience; ask its issuer for one that is for this server."),
    (jwt.MissingRequiredClaimError, "The token has not all of the claims exp, iss and aud; its issuer must give them."),
    (jwt.InvalidAlgorithmError, "The token is signed in a way that is not accepted from its issuer."),
    (jwt.InvalidSignatureError, "The token was not signed by its issuer, or was changed since."),
)
"""What is said of a token that is refused; the first that fits."""


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
            header, issuer_url = unverified["header"], unverified["payload"].get("iss")
        except jwt.PyJWTError:
            raise invalid("The token is no JWT; sign in, or send an API token.") from None
        if not isinstance(issuer_url, str) or issuer_url not in self._by_url:
            raise invalid("The token is of no issuer that is accepted here.")
        name, issuer, keys = self._by_url[issuer_url]
        try:
            return await self._proved(token, header, name, issuer, keys)
        except MunimentError as refusal:
            # For the log: its holder is not told what this server calls the issuer.
            refusal.add_note(f"Issuer: {name}.")
            raise

    async def _proved(
        self, token: str, header: Mapping[str, Any], name: str, issuer: IssuerSettings, keys: IssuerKeys
    ) -> Principal:
        """Who a token of this issuer proves."""
        algorithm = header.get("alg")
        if algorithm not in issuer.algorithms:
            raise _refusal(jwt.InvalidAlgorithmError())
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
            raise _refusal(error) from None
        return claims.principal(name, issuer, verified)


def _refusal(error: jwt.PyJWTError) -> Unauthenticated:
    reasons = (text for kind, text in _REASONS if isinstance(error, kind))
    return invalid(next(reasons, "The token cannot be checked; sign in again."))
