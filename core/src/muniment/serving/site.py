"""What a transport over HTTP is to those that share its address."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from muniment.ports import Callers
from muniment.serving.addresses import Address
from muniment.serving.asgi import App

if TYPE_CHECKING:
    from muniment.engine import Engine


@runtime_checkable
class Site(Protocol):
    """A transport that shares its address with others.

    ``title`` is what people call it, and ``paths`` are those that it answers, the one that clients use first; without
    any it answers all that no other does.
    """

    @property
    def title(self) -> str: ...

    @property
    def paths(self) -> tuple[str, ...]: ...

    @property
    def address(self) -> Address: ...

    def app(
        self, engine: Engine, callers: Callers, address: Address, ending: asyncio.Event
    ) -> AbstractAsyncContextManager[App]:
        """The application, as it is called at an address. What streams ends when ``ending`` is set."""
        ...
