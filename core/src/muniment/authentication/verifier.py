"""The authenticator of every transport over a network: bearer credentials in, a principal or a refusal out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from muniment.authentication import tokens
from muniment.authentication.claims import invalid
from muniment.authentication.settings import AuthSettings
from muniment.errors import (
    INSUFFICIENT_SCOPE,
    INVALID_TOKEN,
    AccessDenied,
    ConfigurationError,
    MunimentError,
    Unauthenticated,
)
from muniment.models import Principal
from muniment.ports import Storage, metadata_url

if TYPE_CHECKING:
    from muniment.authentication.issuers import Issuers

CREDENTIALS_MAX: Final = 16_384
"""Characters that a header may have."""

_BEARER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/-]+=*) *")
"""RFC 6750, section 2.1."""
_UNQUOTABLE = re.compile(r"[^\x20-\x21\x23-\x5b\x5d-\x7e]")


class Verifier:
    """``muniment.ports.Authenticator`` by the configuration."""

    def __init__(self, settings: AuthSettings, storage: Storage) -> None:
        """Raises ConfigurationError where what the settings need is not there."""
        self._settings = settings
        self._issuers = issuers_of(settings)
        self._tokens = tokens.ApiTokens(tokens.token_storage(storage)) if settings.tokens else None

    async def authenticate(self, authorization: str | None) -> Principal:
        """Who the header proves."""
        if authorization is None:
            raise Unauthenticated("Nobody is let in without credentials; send a bearer token.")
        if len(authorization) > CREDENTIALS_MAX:
            raise invalid(
                f"The Authorization header has more than {CREDENTIALS_MAX:,} characters; have its issuer put less into "
                "the token, such as fewer groups."
            )
        match = _BEARER.fullmatch(authorization)
        if match is None:
            raise invalid("The Authorization header is not of the form: Bearer TOKEN.")
        if tokens.is_secret(match[1]):
            if self._tokens is None:
                raise invalid("API tokens are not accepted here; sign in.")
            return await self._tokens.principal(match[1])
        if self._issuers is None:
            raise invalid("Only API tokens are accepted here, as muniment token create makes them.")
        return await self._issuers.principal(match[1])

    def challenge(self, refusal: MunimentError, resource: str) -> str | None:
        """A challenge with the scopes to ask for and, where there is an issuer to ask, where that is said."""
        if not isinstance(refusal, Unauthenticated | AccessDenied):
            return None
        error = refusal.details.get("error")
        if isinstance(refusal, AccessDenied) and error != INSUFFICIENT_SCOPE:
            return None
        parameters = {"realm": "muniment"}
        if error in (INVALID_TOKEN, INSUFFICIENT_SCOPE):
            parameters |= {"error": str(error), "error_description": _UNQUOTABLE.sub(" ", refusal.message)}
        if scope := refusal.details.get("scope") or " ".join(self._scopes()):
            parameters["scope"] = str(scope)
        if self._settings.issuers:
            parameters["resource_metadata"] = metadata_url(resource)
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parameters.items())

    def metadata(self, resource: str) -> Mapping[str, Any]:
        """RFC 9728, section 2."""
        document: dict[str, Any] = {"resource": resource, "bearer_methods_supported": ["header"]}
        if self._settings.issuers:
            document["authorization_servers"] = [one.issuer for one in self._settings.issuers.values()]
        if scopes := self._scopes():
            document["scopes_supported"] = scopes
        return document

    async def close(self) -> None:
        """Wait for what goes on beside requests; before the storage is closed."""
        if self._tokens is not None:
            await self._tokens.close()

    def _scopes(self) -> list[str]:
        """What a person's client asks for, each once."""
        issuers = self._settings.issuers.values()
        found = (scope for one in issuers for scope in (one.read_scope, one.write_scope))
        return list(dict.fromkeys(scope for scope in found if scope is not None))


def issuers_of(settings: AuthSettings) -> Issuers | None:
    """The issuers that the settings name, if any. Raises ConfigurationError where what they need is not there."""
    if not settings.issuers:
        return None
    try:
        from muniment.authentication.issuers import Issuers
    except ImportError as error:
        raise ConfigurationError(
            f"[auth.issuers] needs {error.name}, which is not installed; pip install 'muniment[auth]'."
        ) from None
    return Issuers(settings.issuers)
