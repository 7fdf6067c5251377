"""Rows put into a storage through its port, for checks that want thousands of them or their ids and vectors chosen.

Owns how such a row becomes a mutation. What no operation can make still goes the plugin's own way: through ``apply``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from muniment import access, lexical, passages
from muniment.models import Share
from muniment.ports import (
    AuditDraft,
    Create,
    Index,
    Mutation,
    NewProject,
    Passages,
    PassageVector,
    Placement,
    Remove,
    ShareChange,
    Storage,
    Vector,
)

AT_ONCE = 8
"""Mutations under way at the same time."""


@dataclass(frozen=True, slots=True)
class Row:
    """A memory to be; ``parts`` are its passages' texts with their vectors."""

    id: str
    placement: Placement
    content: str
    tags: tuple[str, ...] = ()
    parts: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    analyser: str = lexical.ANALYSER
    terms: lexical.Terms | None = None


def new_id(random: Random) -> str:
    """An id like those that the engine makes, but by a seeded random."""
    digits = f"{random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def created(row: Row, space: str, random: Random) -> Create:
    """The mutation that stores a row, with the terms of its content unless it brings others."""
    hashes = {passages.digest(text): vector for text, vector in row.parts.items()}
    vectors = tuple(PassageVector(key, vector) for key, vector in hashes.items())
    return Create(
        memory_id=row.id,
        editor="loader",
        placement=row.placement,
        content=row.content,
        tags=row.tags,
        index=Index(
            row.analyser,
            row.terms or lexical.analyse(row.content),
            Passages(space, frozenset(hashes), vectors, complete=True),
        ),
        audit=_audit(random, "memory.write", row.placement.scope_key, row.placement.project_id, memory=row.id),
    )


def removed(row: Row, random: Random) -> Remove:
    """The mutation that deletes a row which was just created."""
    placement = row.placement
    audit = _audit(random, "memory.delete", placement.scope_key, placement.project_id, memory=row.id, version=2)
    return Remove(memory_id=row.id, editor="loader", expected_version=1, audit=audit)


def project(owner: str, key: str, random: Random) -> NewProject:
    """A project to register."""
    new = new_id(random)
    return NewProject(new, key, owner, _audit(random, "project.register", access.project_key(new), new))


def shared(to: NewProject, group: str, share: Share, random: Random) -> ShareChange:
    """The first grant on a project that was just registered."""
    audit = _audit(random, "project.share", access.project_key(to.id), to.id, version=2)
    return ShareChange(project_id=to.id, expected_version=1, group=group, share=share, audit=audit)


async def apply_all(storage: Storage, mutations: Iterable[Mutation]) -> None:
    """Apply independent mutations, some at a time. Raises what the storage raises."""
    waiting = iter(mutations)

    async def work() -> None:
        for mutation in waiting:
            await storage.apply(mutation)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def _audit(
    random: Random, action: str, scope_key: str, project_id: str | None, *, memory: str | None = None, version: int = 1
) -> AuditDraft:
    return AuditDraft(
        id=new_id(random),
        actor="loader",
        agent=None,
        surface="conformance",
        action=action,
        memory_id=memory,
        project_id=project_id,
        version=version,
        changed=("content",) if memory else (),
        scope_key=scope_key,
    )
