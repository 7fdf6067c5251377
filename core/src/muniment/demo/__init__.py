"""``muniment demo``: the product on real documents, through the same door as any client.

This module prepares the place and the people. ``script`` says what they do and what must come of it, ``report``
how that looks, ``clients`` how they are connected, ``documents`` what they work on.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from muniment.config import redact
from muniment.demo import documents
from muniment.demo.clients import Person, Refused, connected
from muniment.demo.report import Report
from muniment.demo.script import Deviation, People, Script

OWNER, COLLEAGUE, GUEST = "alice", "carol", "bob"
EDITORS, READERS = "editors", "readers"


async def run(directory: Path | None, *, storage: str, embedder: str, keep: bool) -> int:
    """Show every step; 0 if all did what they promise, 1 if not. Raises MunimentError where it cannot begin."""
    library = documents.library(directory)
    report = Report()
    report.opening(
        "Muniment keeps documents that people and agents share. Three of them are connected now, each through a "
        "server of their own that an MCP client would start the same way: alice owns a project, carol may write "
        "in it, bob may only read.",
        f"storage {redact(storage)}, embedder {redact(embedder)}, documents: {library.origin}",
    )
    with _place(keep) as place:
        config = _configuration(place, storage, embedder)
        report.note(f"data in {place}" + ("" if keep else ", removed at the end"))
        report.note("starting three servers and connecting a client to each …")
        async with _people(place, config) as people:
            # A task group of the client would wrap what is raised through it, so nothing is.
            failure = await _play(Script(report, people, library, knows_meaning=_knows_meaning(embedder)))
    if failure is not None:
        report.failed(failure)
        return 1
    report.closing(f"All {report.steps} steps did what they promise.")
    if keep:
        report.note(f"Serve this data: {sys.executable} -m muniment serve --config {config} --user {OWNER}")
    return 0


async def _play(script: Script) -> str | None:
    """Why a step deviated, or None."""
    try:
        await script.play()
    except Deviation as deviation:
        return str(deviation)
    except Refused as refusal:
        return f"it was refused with {refusal.code}: {refusal}"
    except Exception as error:
        return f"it ended with {type(error).__name__}: {error}"
    return None


@asynccontextmanager
async def _people(place: Path, config: Path) -> AsyncGenerator[People, None]:
    async with AsyncExitStack() as stack:

        async def connect(name: str, *groups: str) -> Person:
            return await stack.enter_async_context(connected(name, groups, place, config))

        yield People(await connect(OWNER), await connect(COLLEAGUE, EDITORS), await connect(GUEST, READERS))


@contextmanager
def _place(keep: bool) -> Generator[Path, None, None]:
    """A fresh directory for the data, removed afterwards unless it is to be kept."""
    path = Path(tempfile.mkdtemp(prefix="muniment-demo-"))
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # As root an embedded server runs as another user, who must be able to enter.
        path.chmod(0o755)
    try:
        yield path
    finally:
        if not keep:
            shutil.rmtree(path, ignore_errors=True)


def _configuration(place: Path, storage: str, embedder: str) -> Path:
    """The three servers' configuration file. A TOML basic string is written as a JSON one."""
    settings = {
        "storage": storage,
        "embedder": embedder,
        "data_dir": str(place / "data"),
        "project": "demo/handbook",
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    file = place / "muniment.toml"
    file.write_text("\n".join([*lines, "embed_timeout = 120", ""]), encoding="utf-8")
    file.chmod(0o600)
    return file


def _knows_meaning(embedder: str) -> bool:
    return embedder != "none" and not embedder.startswith("hash:")
