"""What ``muniment doctor`` says of an embedded server's place, what is in it and who uses it; nothing is started.

It is asked before the storage is opened and again after: first it tells what it found, then what was done about it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

from muniment.errors import MunimentError, StorageUnavailable
from muniment.hookspecs import DoctorContext, Finding
from muniment.ports import PluginContext
from muniment_storage_postgres import directories, embedded, making, postmaster, reasons, settings, waiting
from muniment_storage_postgres.presence import Presence
from muniment_storage_postgres.wheel import MAJOR

_PATIENCE, _KNOWN = 10.0, 1.0
"""Seconds to wait for a process that starts or stops the server, and once more for one that was waited for already."""
_START = 40.0
"""Seconds that the server's start may take afterwards: less than doctor gives a check, so that the reason is told."""


def findings(context: DoctorContext) -> Sequence[Finding]:
    """Whether a server may keep its data in the data directory, what is there, and who uses it."""
    configured = settings.parse(PluginContext(context.storage, Path(context.data_dir)))
    if configured.directory is None:
        return ()
    subject = f"embedded PostgreSQL in {configured.directory}"
    found: list[Finding] = []
    try:
        found.extend(Finding(subject, ok=True, detail=detail) for detail in _seen(configured.directory.resolve()))
    except MunimentError as error:
        found.append(Finding(subject, ok=False, detail=error.message))
    except OSError as error:
        refusal = directories.unusable(configured.directory, error)
        found.append(Finding(subject, ok=False, detail=refusal.message))
    return found


def _seen(directory: Path) -> Generator[str]:
    """What is well, line by line. Raises ConfigurationError and StorageUnavailable for what is not."""
    server = embedded.server(directory)
    server.lock_patience, server.start_patience = server.lock_patience or _PATIENCE, _START
    directories.check_place(directory)
    yield "a server may keep its data there"
    yield from server.mended
    for pid in postmaster.of_deleted(directory):
        yield (
            f"the directory was deleted while its server ran, as process {pid}, which still runs; the next start ends "
            "it, since its data are gone"
        )
    presence = Presence(directory)
    if not presence.begun():
        directories.check_contents(directory)
        yield "nobody has used it yet; the first start makes the data"
        return
    reasons.check_room(directory)
    try:
        with presence.exclusive(patience=server.lock_patience):
            lines = _settled(directory, presence)
    except StorageUnavailable:
        server.lock_patience = _KNOWN
        raise
    yield from lines


def _settled(directory: Path, presence: Presence) -> Sequence[str]:
    """What is known only while nobody starts or stops the server."""
    directories.check_contents(directory)
    users = presence.others()
    dead = _dead(presence)
    if not making.is_made(directory):
        begun = "making the data was interrupted" if any(directory.glob(".ma[dk]*")) else "it holds no data"
        return (*dead, f"{begun}; the next start makes them")
    postmaster.check_ours(directory)
    return (f"it holds data of PostgreSQL {MAJOR}", *dead, _server(directory, presence, users))


def _dead(presence: Presence) -> Sequence[str]:
    if not presence.killed:
        return ()
    were = "was" if len(presence.killed) == 1 else "were"
    return (f"{_numbered(presence.killed)} {were} killed while using it, and not counted out; that is done now",)


def _numbered(pids: Sequence[int]) -> str:
    return f"process{'' if len(pids) == 1 else 'es'} {', '.join(map(str, sorted(pids)))}"


def _server(directory: Path, presence: Presence, users: Sequence[int]) -> str:
    found = postmaster.running(directory)
    used = f"used by {len(users)} ({_numbered(users)})" if users else "used by nobody"
    if found is None:
        return f"{_gone(directory)}; {used}"
    state = "runs" if found.ready else "is starting, recovering or stopping,"
    end = "it is stopped when the last one leaves"
    if not presence.is_watched():
        end += ", but goes on where all of them are killed, until the next one leaves"
    return f"its server {state} as {waiting.named([found.pid])}, {used}; {end}"


def _gone(directory: Path) -> str:
    """How a server has ended that is not there any more."""
    if postmaster.was_shut_down(directory):
        return "its server is stopped, and was shut down cleanly"
    pid = postmaster.noted(directory)
    which = "" if pid is None else f", process {pid},"
    return f"its server{which} was killed or crashed without a shutdown; the next start recovers what was committed"
