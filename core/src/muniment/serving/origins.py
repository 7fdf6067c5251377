"""Origins of pages as a setting names them, and as a browser sends them: a scheme, a host and maybe a port (RFC 6454,
section 6.2). One that no browser ever sends is refused, with what to write instead: it would let nobody in, silently.
"""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator

EXAMPLE: Final = "https://app.example"

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]*:[0-9a-f:.]*")


def origin(value: str) -> str:
    """An origin in the spelling that browsers send: in lower case, without a slash at its end and without the port that
    its scheme has anyway. Raises ValueError."""
    if "*" in value:
        raise ValueError(f"* stands for no origin here; write each one, such as {EXAMPLE}")
    if value.lower() == "null":
        raise ValueError(f"null is sent by any page that hides where it is from; write an origin, such as {EXAMPLE}")
    parts, host, port = _parsed(value)
    name = host.encode("idna").decode() if not host.isascii() else host
    shown = f"[{name}]" if ":" in name else name
    meant = f"{parts.scheme}://{shown}" + ("" if port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{port}")
    if parts.path not in ("", "/") or "?" in value or "#" in value:
        raise ValueError(f"an origin has no path; write {meant}")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"an origin has no user; write {meant}")
    if not host.isascii():
        raise ValueError(f"browsers send a host in ASCII; write {meant}")
    return meant


def _parsed(value: str) -> tuple[SplitResult, str, int | None]:
    """What an origin consists of."""
    try:
        parts = urlsplit(value)
        host, port = parts.hostname or "", parts.port
        name = host if host.isascii() else host.encode("idna").decode()
    except ValueError:
        raise ValueError(f"it is no origin; write one such as {EXAMPLE}") from None
    if "://" not in value:
        bare = value.partition("/")[0].lower()
        meant = f"https://{bare}" if _HOST.fullmatch(bare.partition(":")[0]) else EXAMPLE
        raise ValueError(f"an origin begins with its scheme; write {meant}")
    if parts.scheme == "file" or not _SCHEME.fullmatch(parts.scheme) or not _HOST.fullmatch(name):
        raise ValueError(f"it is no origin that a browser sends; write one such as {EXAMPLE}")
    return parts, host, port


Origin = Annotated[str, AfterValidator(origin)]
"""The type of a setting that names one."""
