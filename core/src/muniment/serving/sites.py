"""Transports over HTTP in one process, at one address or several: how they are served, and end together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from socket import socket
from typing import TYPE_CHECKING, Any

from muniment.ports import Callers
from muniment.serving.addresses import Address, listening
from muniment.serving.asgi import App, Receive, Scope, Send
from muniment.serving.http import serve_app
from muniment.serving.signals import end_on_signals
from muniment.serving.site import Site

if TYPE_CHECKING:
    from muniment.engine import Engine


async def serve(
    sites: Sequence[Site], engine: Engine, callers: Callers, *, started: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM or SIGINT arrives, or the task is cancelled; where each listens goes to standard error.

    New connections are refused from then on, and requests that came in by then are answered first, for at most
    ``serving.http.FINISH_SECONDS``; streams end at once. Where the process handles SIGTERM itself, both signals are
    left to it. ``started`` is called once nothing can be refused any more. Raises ConfigurationError where a port
    cannot be had, or ``callers`` do not allow an address.
    """
    at: dict[Address, list[Site]] = {}
    for site in sites:
        at.setdefault(site.address, []).append(site)
    ending = asyncio.Event()
    with ExitStack() as stack:
        for address in at:
            callers.check_address(address.host, loopback=address.is_loopback)
        listeners = [(stack.enter_context(listening(address)), shared) for address, shared in at.items()]
        stack.callback(end_on_signals(ending.set).give_back)
        started()
        await together(*(serve_at(listener, shared, engine, callers, ending) for listener, shared in listeners))


async def serve_at(
    listener: socket, sites: Sequence[Site], engine: Engine, callers: Callers, ending: asyncio.Event
) -> None:
    """Serve all of ``sites`` on a socket that listens, until ``ending`` is set or the task is cancelled."""
    address = Address.of_listener(listener)
    failed: Exception | None = None
    async with AsyncExitStack() as stack:
        apps = [
            (site.paths, await stack.enter_async_context(site.app(engine, callers, address, ending))) for site in sites
        ]
        for site in sites:
            sys.stderr.write(f"muniment: serving {site.title} at {address.url}{''.join(site.paths[:1])}\n")
        sys.stderr.flush()
        try:
            await serve_app(listener, _by_path(apps), ending)
        except Exception as error:
            # Raised in here it might come out as a group.
            failed = error
    if failed is not None:
        raise failed


async def together(*works: Awaitable[Any]) -> None:
    """Run all of ``works`` until one ends or this task is cancelled; the others are cancelled and waited for.

    Raises what the first that failed raised.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


def _by_path(apps: Sequence[tuple[tuple[str, ...], App]]) -> App:
    """One application, which leaves each request to the one that answers its path."""
    known: Mapping[str, App] = {path: app for paths, app in apps for path in paths}
    rest = next((app for paths, app in apps if not paths), apps[0][1])

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        await known.get(scope["path"], rest)(scope, receive, send)

    return answered
