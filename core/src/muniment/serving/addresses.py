"""Where a transport listens: its address, its socket, and the names by which it may be called.

Who may listen where is ``ports.Callers``'.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import sys
from collections.abc import Generator
from dataclasses import dataclass
from urllib.parse import urlsplit

from muniment.errors import ConfigurationError

EXAMPLE = "127.0.0.1:8765"

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(:\d*)?")


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; port 0 is one that the system chooses."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Address:
        """The address that ``http://HOST:PORT`` says. Raises ConfigurationError."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or port is None or url.lower() != f"http://{_bracketed(host)}:{port}":
            raise ConfigurationError(f"{url!r} is no address to serve at; write HOST:PORT, such as {EXAMPLE}.")
        return cls("127.0.0.1" if host == "localhost" else host, port)

    @classmethod
    def of_listener(cls, listener: socket.socket) -> Address:
        """The address that a socket is bound to."""
        host, port = listener.getsockname()[:2]
        return cls(host, port)

    @property
    def url(self) -> str:
        """What clients call it by."""
        return f"http://{_bracketed(self.host)}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether this machine alone reaches it."""
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False


@dataclass(frozen=True, slots=True)
class Names:
    """What a listener answers to. A page of a foreign site reaches it under its own name, by rebinding that, or says
    where it is from."""

    hosts: frozenset[str]
    origins: frozenset[str]

    @classmethod
    def of(cls, address: Address, url: str | None = None) -> Names:
        """The names of an address of this machine: with any port, as through a tunnel; pages of its own port alone.

        ``url`` is where clients reach it from outside, if they do; its pages may call.
        """
        hosts = frozenset((_bracketed(address.host), "127.0.0.1", "localhost", "[::1]"))
        origins = frozenset(f"http://{host}:{address.port}" for host in hosts)
        if url is None:
            return cls(hosts, origins)
        outside = _bracketed(urlsplit(url).hostname or "")
        return cls(hosts | {outside}, origins | {url.lower()})

    def serves(self, host: str | None) -> bool:
        """Whether a request whose ``Host`` is this is for this listener."""
        found = _HOST.fullmatch((host or "").lower())
        return found is not None and found[1] in self.hosts

    def admits(self, origin: str | None) -> bool:
        """Whether a page of this ``Origin`` may call; None is for what is no page."""
        return origin is None or origin.lower() in self.origins


@contextlib.contextmanager
def listening(address: Address) -> Generator[socket.socket]:
    """A socket that listens. Raises ConfigurationError."""
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(contextlib.closing(_tcp_socket(address.host)))
            listener.bind((address.host, address.port))
            listener.listen()
        except OSError as error:
            raise ConfigurationError(
                f"Nothing can be served at {address.host} port {address.port} ({error.strerror}); end what holds it, "
                "or choose another."
            ) from None
        yield listener


def _tcp_socket(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named outright, since asyncio sends small packets at once only on what says that it is TCP.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if sys.platform != "win32":
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
