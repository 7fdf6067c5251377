"""The storage under test, and mutations as the engine makes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from muniment import access, lexical
from muniment.conformance import agent_races
from muniment.conformance.agent_process import Process, start
from muniment.conformance.agent_races import Rivals
from muniment.ports import AuditDraft, Create, Index, PluginContext, Revise, Storage
from muniment_storage_sqlite.conformance import FileSubject, SqliteTarget
from muniment_storage_sqlite.storage import create

_OWNER = "alice"
_AGENT_PROCESS = Path(__file__).with_name("agent_process.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where there is no file yet."""
    return tmp_path / "memories.db"


@pytest.fixture
def opened() -> Callable[..., AbstractAsyncContextManager[Storage]]:
    """What opens a storage on a path, with options, and closes it afterwards."""
    return _opened


@pytest.fixture
def creation() -> Callable[[str, str], Create]:
    """What makes a new memory of alice's, from its id and its content."""
    return _creation


@pytest.fixture
def revision() -> Callable[[str, int, str, str], Revise]:
    """What makes another content for a memory, from its id, its version, the content and who writes it."""
    return _revision


@pytest.fixture
async def subject(tmp_path: Path) -> AsyncGenerator[FileSubject]:
    """A file with a client in a process of its own."""
    async with SqliteTarget(str(tmp_path)).open() as subject:
        yield subject


@pytest.fixture
async def rivals(subject: FileSubject) -> AsyncGenerator[Rivals]:
    """The client in a process of its own and another one in this process."""
    async with agent_races.rivals(SqliteTarget(), subject) as rivals:
        yield rivals


@pytest.fixture
async def process(subject: FileSubject) -> AsyncGenerator[Process]:
    """A process with another client on the same file."""
    async with start(_AGENT_PROCESS, str(subject.path)) as started:
        yield started


@pytest.fixture
async def another_process(subject: FileSubject) -> AsyncGenerator[Process]:
    """One more."""
    async with start(_AGENT_PROCESS, str(subject.path)) as started:
        yield started


@asynccontextmanager
async def _opened(path: Path, **options: Any) -> AsyncGenerator[Storage]:
    storage = create(PluginContext(spec=f"sqlite:{path}", data_dir=path.parent / "data", options=options))
    try:
        await storage.open()
        yield storage
    finally:
        await storage.close()


def _creation(memory: str, content: str) -> Create:
    return Create(
        memory_id=memory,
        editor=_OWNER,
        audit=_entry(memory, 1, "memory.write"),
        placement=access.own_placement(_OWNER),
        content=content,
        tags=("kept",),
        index=Index(lexical.ANALYSER, lexical.analyse(content), None),
    )


def _revision(memory: str, version: int, content: str, actor: str) -> Revise:
    return Revise(
        memory_id=memory,
        editor=actor,
        audit=_entry(memory, version + 1, "memory.update", actor),
        expected_version=version,
        content=content,
        index=Index(lexical.ANALYSER, lexical.analyse(content), None),
    )


def _entry(memory: str, version: int, action: str, actor: str = _OWNER) -> AuditDraft:
    return AuditDraft(
        id=f"{memory}-{version}-{actor}",
        actor=actor,
        agent=None,
        surface="test",
        action=action,
        memory_id=memory,
        project_id=None,
        version=version,
        changed=("content",),
        scope_key=access.user_key(_OWNER),
    )
