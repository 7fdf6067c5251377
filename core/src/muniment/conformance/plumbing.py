"""Whether a target itself can be relied on: that what it opens, reads and breaks is what it says.

The suite sees a plugin through its target, so one that is empty where it should not be, or reads something else than
what is stored, would let faults pass. These checks are no invariants of a plugin; ``self_test`` runs them. Those of a
storage's target are in ``storage_plumbing``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from muniment.conformance.invariant import Invariant, seat_of
from muniment.conformance.seams import StagedEngine
from muniment.conformance.storage_plumbing import AGES, CRASHES, LAYOUT, STORAGES, TEXT, Check, passes
from muniment.conformance.target import EmbedderTarget, StorageTarget, Target, TransportTarget
from muniment.conformance.world import World, same
from muniment.models import CallContext, Principal
from muniment.reference import HashEmbedder, ReferenceStorage


async def opens_embedders_apart(target: EmbedderTarget, world: World) -> None:
    """Closing one leaves another; exceptions pass."""
    async with target.open() as first:
        async with target.open():
            pass
        same("how many vectors one gives after another was closed", len(await first.embed_passages([TEXT])), 1)
    await passes("open", target.open())


async def connects_engines_apart(target: TransportTarget, world: World) -> None:
    """Leaving a connection leaves its engine open; exceptions pass."""
    async with StagedEngine(ReferenceStorage(), HashEmbedder(), background=False) as engine:
        context = _context("alice")
        async with target.connect(engine, context) as client:
            await client.call("memory.write", {"content": TEXT})
        await passes("connect", target.connect(engine, context))
        async with target.connect(engine, context) as client:
            same("what another connection lists", len((await client.call("memory.list", {})).answer["items"]), 1)


async def connects_to_the_engine(target: TransportTarget, world: World) -> None:
    """Two connections that are open at once are each of their own principal, and to the engine that was given."""
    engine = StagedEngine(ReferenceStorage(), HashEmbedder(), background=False)
    async with (
        engine,
        target.connect(engine, _context("alice")) as alice,
        target.connect(engine, _context("bob")) as bob,
    ):
        for client, user in ((alice, "alice"), (bob, "bob")):
            engine.asked = None
            reply = await client.call("memory.write", {"content": f"{TEXT} {user}"})
            same("the operation and the user that reach the engine", _asked(engine), ("memory.write", user))
            record = engine.answered and engine.answered.model_dump(mode="json")
            same("what the client hands back", reply.answer, record)
            same("whether what it hands back was in the reply's text", str(reply.answer["id"]) in reply.body, True)


_EMBEDDERS: tuple[tuple[str, Check], ...] = (
    ("open gives an embedder of its own, and lets exceptions pass", opens_embedders_apart),
)
_TRANSPORTS: tuple[tuple[str, Check], ...] = (
    ("connect ends its own connection alone, and lets exceptions pass", connects_engines_apart),
    ("connect gives a client of the principal and the engine that it is given", connects_to_the_engine),
)


def plumbing(target: Target) -> tuple[Invariant, ...]:
    """The checks of a target, as the runner takes them; what a target does without is not checked."""
    return tuple(
        Invariant(
            id=f"TARGET-{number:02}",
            statement=statement,
            check=partial(check, target),
            seats=frozenset({seat_of(target)}),
        )
        for number, (statement, check) in enumerate(_checks(target), 1)
    )


def not_given(target: Target) -> tuple[str, ...]:
    """The optional methods that a target does without."""
    if not isinstance(target, StorageTarget):
        return ()
    storages = cast("StorageTarget[Any]", target)
    return tuple(name for name, given in (("age", storages.can_age), ("crash", storages.can_crash)) if not given)


def _checks(target: Target) -> Iterator[tuple[str, Check]]:
    match target:
        case EmbedderTarget():
            yield from _EMBEDDERS
        case TransportTarget():
            yield from _TRANSPORTS
        case _:
            yield from STORAGES
            if target.is_of("1.2"):
                yield LAYOUT
            absent = not_given(target)
            if "age" not in absent:
                yield AGES
            if "crash" not in absent:
                yield CRASHES


def _context(user: str) -> CallContext:
    return CallContext(principal=Principal(user=user), surface="conformance")


def _asked(engine: StagedEngine) -> tuple[str, str] | None:
    return engine.asked and (engine.asked[0], engine.asked[1].user)
