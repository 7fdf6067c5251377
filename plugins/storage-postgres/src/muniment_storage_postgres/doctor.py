"""What ``muniment doctor`` says of an embedded server's place, what is in it and who uses it; nothing is started."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

from muniment.errors import MunimentError, StorageUnavailable
from muniment.hookspecs import DoctorContext, Finding
from muniment.ports import PluginContext
from muniment_storage_postgres import directories, making, postmaster, reasons, settings
from muniment_storage_postgres.presence import Presence
from muniment_storage_postgres.watch import PID_FILE
from muniment_storage_postgres.wheel import MAJOR

_PATIENCE = 2.0
"""Seconds to wait for a process that starts or stops the server."""


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
    directories.check_place(directory)
    yield "a server may keep its data there"
    presence = Presence(directory)
    if not presence.begun():
        directories.check_contents(directory)
        yield "nobody has used it yet; the first start makes the data"
        return
    reasons.check_room(directory)
    try:
        with presence.exclusive(patience=_PATIENCE):
            lines = _settled(directory, presence)
    except StorageUnavailable:
        lines = ("another process is starting or stopping the server just now",)
    yield from lines


def _settled(directory: Path, presence: Presence) -> Sequence[str]:
    """What is known only while nobody starts or stops the server."""
    directories.check_contents(directory)
    if not making.is_made(directory):
        return ("making the data was interrupted; the next start makes them",)
    postmaster.check_ours(directory)
    return (f"it holds data of PostgreSQL {MAJOR}", _server(directory, presence))


def _server(directory: Path, presence: Presence) -> str:
    found = postmaster.running(directory)
    users = presence.others()
    used = f"used by {len(users)} (processes {', '.join(map(str, users))})" if users else "used by nobody"
    if found is None:
        killed = (directory / PID_FILE).exists()
        return f"its server was killed, the next start recovers; {used}" if killed else f"its server is stopped; {used}"
    state = "runs" if found.ready else "is starting, recovering or stopping,"
    end = "it is stopped when the last one leaves"
    if not presence.is_watched():
        end += ", but goes on where all of them are killed, until the next one leaves"
    return f"its server {state} as process {found.pid}, {used}; {end}"
