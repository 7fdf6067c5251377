"""Who calls: what proves it, and what a transport asks before it lets a call through.

How credentials are checked is ``muniment.authentication``'s, and the same for every transport. What a principal may do
is the engine's: a transport passes on who calls, and refuses nobody who was proved.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from muniment.errors import ConfigurationError, MunimentError
from muniment.limits import BODY_MAX
from muniment.models import CallContext, Principal

METADATA_PATH = "/.well-known/oauth-protected-resource"
"""Where the metadata of a resource is; its own path follows, as RFC 9728 (section 3.1) says."""


@runtime_checkable
class Authenticator(Protocol):
    """Proves who sends a request. Calls overlap, from one event loop."""

    async def authenticate(self, authorization: str | None) -> Principal:
        """Who the ``Authorization`` header proves; None where there is none. Of several a transport passes on none.

        Raises Unauthenticated where it proves nobody, and IssuerUnavailable or StorageUnavailable where it cannot be
        checked now, which says nothing about the credentials.
        """
        ...

    def challenge(self, refusal: MunimentError, resource: str) -> str | None:
        """The ``WWW-Authenticate`` header of a reply with this refusal, as RFC 6750 and RFC 9728 say.

        None where the refusal is no question of credentials. ``resource`` is the URL under which clients reach the
        transport, without a slash at its end.
        """
        ...

    def metadata(self, resource: str) -> Mapping[str, Any]:
        """The JSON document at ``metadata_url(resource)``, which anybody may read."""
        ...


def as_often_as_they_like(principal: Principal) -> None:
    """Every request is let through."""


@dataclass(frozen=True, slots=True)
class Callers:
    """Who may call, and how much, by the configuration.

    ``local`` is the caller that the configuration names: who starts a transport over standard streams. Over a network
    it is who the ``authenticator`` proves; None says that nobody is asked, which ``anybody`` must say by name.
    ``url`` is where clients reach this server from outside, without a path, where the configuration says so.
    ``admit`` is told who sends a request, and raises RateLimited where those were too many; ``body_max`` is how many
    bytes one may have.
    """

    local: CallContext
    authenticator: Authenticator | None = None
    anybody: bool = False
    url: str | None = None
    admit: Callable[[Principal], None] = as_often_as_they_like
    body_max: int = BODY_MAX

    def check_address(self, host: str, *, loopback: bool) -> None:
        """Whether a transport may listen at ``host``, which this machine alone reaches if it is ``loopback``.

        Without an authenticator only there, and only where that was asked for by name; with one anywhere, but clients
        of other machines must be told a ``url``. Raises ConfigurationError.
        """
        if self.authenticator is not None:
            if not loopback and self.url is None:
                raise ConfigurationError(
                    f"At {host!r} other machines are served, and nothing says by which URL they reach it; set url in "
                    "[auth], such as https://memory.example.com."
                )
            return
        if not loopback:
            raise ConfigurationError(
                f"Nothing is served at {host!r} as long as nobody is asked for credentials, since whoever reached it "
                "would be the configured user; say who may call in [auth], or serve this machine alone at 127.0.0.1."
            )
        if not self.anybody:
            raise ConfigurationError(
                "The configuration does not say who may call over HTTP; say it in [auth], or use --no-auth, by which "
                "whoever reaches the address on this machine is the configured user."
            )

    def counted(self, principal: Principal) -> Hashable:
        """As whose a request counts among those of all; None where callers are not told apart."""
        return None if self.authenticator is None else principal.caller

    async def context(self, authorization: str | None) -> CallContext:
        """Who sends a request with this ``Authorization`` header, once for each request.

        Without an authenticator it is ``local``. An authenticated caller has no default project: that is of whoever
        started the server. Raises as ``Authenticator.authenticate`` does, and RateLimited.
        """
        context = await self.proved(authorization)
        self.admit(context.principal)
        return context

    async def proved(self, authorization: str | None) -> CallContext:
        """The same for what is no request of an operation, and is not counted. Raises as the authenticator does."""
        if self.authenticator is None:
            return self.local
        return CallContext(principal=await self.authenticator.authenticate(authorization))


def metadata_url(resource: str) -> str:
    """Where the metadata of a resource is: between its host and its path."""
    scheme, _, rest = resource.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}{METADATA_PATH}{slash}{path}"
