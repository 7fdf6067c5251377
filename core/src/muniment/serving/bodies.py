"""The body of a request, no larger than it may be, whether its length is announced or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from muniment.errors import InvalidInput, PayloadTooLarge
from muniment.limits import BODY_MAX


async def bounded(pieces: AsyncIterator[bytes], announced: int | None, limit: int = BODY_MAX) -> bytes:
    """The body that comes in ``pieces``; ``announced`` is its length in bytes, where that was said.

    Raises PayloadTooLarge as soon as it is known: before anything is read, or with the piece that passes ``limit``.
    """
    if announced is not None and announced > limit:
        raise too_large(limit)
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > limit:
            raise too_large(limit)
    return bytes(body)


def announced_length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """The length that a request's headers, names in lower case, say; None where they say none."""
    said = [value for name, value in headers if name == b"content-length"]
    return int(said[0]) if said and said[0].isdigit() else None


def encoded(encodings: str | None) -> InvalidInput | None:
    """The refusal of a body by its ``Content-Encoding``, where it has one: a small body may unpack to any size."""
    if (encodings or "identity").strip().lower() == "identity":
        return None
    return InvalidInput("Content-Encoding", "the body is not decoded; send it without one")


def too_large(limit: int = BODY_MAX) -> PayloadTooLarge:
    """The refusal of a body of more than ``limit`` bytes."""
    return PayloadTooLarge(f"A request may have {limit:,} bytes; send less at once.", limit=limit)
