"""One HTTP request whose body is sent until there is an answer; a client library would send it to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit


async def ask(
    method: str, url: str, headers: Mapping[str, str], pieces: AsyncIterator[bytes], announced: int | None
) -> tuple[int, str]:
    """The status and the body of the answer. ``announced`` is the length that is said beforehand, None for none."""
    parts = urlsplit(url)
    chunked = announced is None
    length = {"transfer-encoding": "chunked"} if chunked else {"content-length": str(announced)}
    fields = {"host": parts.netloc, **headers, **length}
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = [f"{method} {parts.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    writer.write("\r\n".join(head).encode())
    sending = asyncio.create_task(_sent(writer, pieces, chunked=chunked))
    try:
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        size = next(line for line in lines if line.startswith(b"content-length:"))
        body = await reader.readexactly(int(size.partition(b":")[2]))
    finally:
        sending.cancel()
        await asyncio.wait({sending})
        writer.close()
    return int(status.split(b" ")[1]), body.decode()


async def _sent(writer: asyncio.StreamWriter, pieces: AsyncIterator[bytes], *, chunked: bool) -> None:
    async for piece in pieces:
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")
