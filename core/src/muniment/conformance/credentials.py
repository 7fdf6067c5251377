"""What proves who calls, where a check says so: an authenticator without tokens and keys."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from muniment.errors import MunimentError, Unauthenticated
from muniment.models import Principal


class Credentials:
    """``muniment.ports.Authenticator``. ``proves`` says whom a header proves, or by what it is refused.

    Where there is a ``meeting``, whoever is asked for waits until all that it is for have come.
    """

    def __init__(self) -> None:
        self.proves: dict[str, Principal | Exception] = {}
        self.meeting: asyncio.Barrier | None = None

    async def authenticate(self, authorization: str | None) -> Principal:
        """Who it is."""
        found = self.proves.get(authorization or "")
        if self.meeting is not None:
            await self.meeting.wait()
        if found is None:
            raise Unauthenticated
        if isinstance(found, Exception):
            raise found
        return found

    def challenge(self, refusal: MunimentError, resource: str) -> str | None:
        """Only that there is one."""
        return 'Bearer realm="conformance"' if isinstance(refusal, Unauthenticated) else None

    def metadata(self, resource: str) -> Mapping[str, Any]:
        """Only of what."""
        return {"resource": resource}
