"""A target on a server: each subject is a place of its own there, a schema or a database.

A place is emptied and used again, since making one takes longer than a check. Nothing is left on the server.
"""

from __future__ import annotations

import atexit
from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from muniment.conformance.target import NotRun, StorageTarget, Subject
from muniment.errors import ConfigurationError, StorageUnavailable
from muniment.ports import Storage


@dataclass
class PlacedSubject(Subject):
    """A subject, and the name of the place that it lives in."""

    place: str


class PlacesTarget(StorageTarget[PlacedSubject]):
    """``open`` and ``second`` of a target that can make, empty and remove places.

    A server that cannot be used at first was not there: ``NotRun``. Once it was, or runs as the target's own, that is a
    failure.
    """

    def __init__(self) -> None:
        self._free: list[str] = []
        self._made: list[str] = []
        self._reached = False

    @abstractmethod
    def client(self, place: str) -> Storage:
        """A client on the place, not open yet; ``open`` makes what the place needs."""

    @abstractmethod
    async def empty(self, place: str) -> None:
        """Remove all data from it, around the plugin."""

    @abstractmethod
    def remove(self, places: Sequence[str]) -> None:
        """Remove the places, as the process ends. Must not raise."""

    async def start(self) -> bool:
        """Start the server where it is the target's own and does not run; whether it is. Raises NotRun."""
        return False

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[PlacedSubject]:
        """A subject in an empty place."""
        try:
            self._reached |= await self.start()
        except NotRun as missing:
            if self._reached:
                raise RuntimeError(str(missing)) from missing
            raise
        place = self._free.pop() if self._free else self._new()
        subject = PlacedSubject(self.client(place), place)
        try:
            await subject.storage.open()
        except (ConfigurationError, StorageUnavailable) as error:
            if self._reached:
                raise
            raise NotRun(str(error)) from error
        self._reached = True
        try:
            yield subject
        finally:
            await subject.storage.close()
            await self.empty(place)
            self._free.append(place)

    @asynccontextmanager
    async def second(self, subject: PlacedSubject) -> AsyncGenerator[Storage]:
        """Another client with connections of its own."""
        await self.start()
        client = self.client(subject.place)
        await client.open()
        try:
            yield client
        finally:
            await client.close()

    def _new(self) -> str:
        if not self._made:
            atexit.register(lambda: self.remove(self._made))
        self._made.append(f"muniment_suite_{uuid4().hex[:12]}")
        return self._made[-1]
