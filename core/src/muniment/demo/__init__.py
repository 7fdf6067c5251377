"""``muniment demo``: the product on real documents, through the same door as any client.

This module prepares the place and who takes part. ``shared_memories`` and ``agent_memory`` are the two acts and say
what must come of each step, ``report`` how that looks, ``clients`` how they are connected, ``documents`` and ``texts``
what they work on.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Coroutine, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from muniment.config import redact
from muniment.demo import documents
from muniment.demo.agent_memory import INSTANCE, AgentMemory, Agents
from muniment.demo.clients import Person, Refused, connected
from muniment.demo.documents import Library
from muniment.demo.report import Report
from muniment.demo.shared_memories import People, SharedMemories
from muniment.demo.steps import Deviation
from muniment.errors import MunimentError

OWNER, COLLEAGUE, GUEST = "alice", "carol", "bob"
EDITORS, READERS = "editors", "readers"
PLATFORM = "platform"
AGENTS = ("ada", "bert")


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
        failure = await _shown(report, library, place, config, knows_meaning=_knows_meaning(embedder))
    if isinstance(failure, MunimentError):
        raise failure
    if failure is not None:
        report.failed(failure)
        return 1
    report.closing(f"All {report.steps} steps did what they promise.")
    if keep:
        report.note(f"Serve this data: {sys.executable} -m muniment serve --config {config} --user {OWNER}")
    return 0


class Cast:
    """Who takes part, each with a server of their own from when they are called until ``stack`` ends."""

    def __init__(self, stack: AsyncExitStack, place: Path, config: Path) -> None:
        self._stack = stack
        self._place = place
        self._config = config

    async def person(self, name: str, *groups: str) -> Person:
        """A person in these groups."""
        return await self._connect(name, "--user", name, *(part for group in groups for part in ("--group", group)))

    async def platform(self) -> Person:
        """The platform. Neither it nor an agent searches in this demonstration, so neither loads the model."""
        return await self._connect(PLATFORM, "--user", PLATFORM, "--platform", "--embedder", "none")

    async def agent(self, name: str) -> Person:
        """An agent instance, whose events begin with a line on what is new."""
        options = ("--agent", f"{name}/{INSTANCE}", "--memory-cue")
        return await self._connect(name, "--user", name, *options, "--embedder", "none")

    async def _connect(self, name: str, *options: str) -> Person:
        return await self._stack.enter_async_context(connected(name, options, self._place, self._config))


async def _shown(
    report: Report, library: Library, place: Path, config: Path, *, knows_meaning: bool
) -> str | MunimentError | None:
    """Why a step deviated, what keeps a server from starting, or None.

    Nothing is raised, since the task group of each client would wrap what is raised through it.
    """
    async with AsyncExitStack() as stack:
        try:
            return await _acts(report, library, Cast(stack, place, config), knows_meaning=knows_meaning)
        except MunimentError as refusal:
            return refusal


async def _acts(report: Report, library: Library, cast: Cast, *, knows_meaning: bool) -> str | None:
    """Why a step deviated, or None. Raises what keeps a server from starting."""
    report.note("starting three servers and connecting a client to each …")
    owner = await cast.person(OWNER)
    people = People(owner, await cast.person(COLLEAGUE, EDITORS), await cast.person(GUEST, READERS))
    failure = await _deviation(SharedMemories(report, people, library, knows_meaning=knows_meaning).play())
    if failure is not None:
        return failure
    report.opening(
        "",
        "Agents have a memory of their own. The same data is now also served to two agents, ada and bert, and to the "
        "platform that they run on.",
    )
    ada, bert = [await cast.agent(name) for name in AGENTS]
    return await _deviation(AgentMemory(report, Agents(await cast.platform(), ada, bert, owner)).play())


async def _deviation(act: Coroutine[Any, Any, None]) -> str | None:
    """Why a step of the act deviated, or None."""
    try:
        await act
    except Deviation as deviation:
        return str(deviation)
    except Refused as refusal:
        return f"it was refused with {refusal.code}: {refusal}"
    except Exception as error:
        return f"it ended with {type(error).__name__}: {error}"
    return None


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
