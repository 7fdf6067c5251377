"""A small estate that checks of access walk over, and how to build an input for each operation on it.

The list of operations is the registry's. One that has no recipe here is a failure of the checks that need it,
so that an operation added later is judged at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muniment.conformance.invariant import Broken
from muniment.conformance.world import Caller, World
from muniment.operations import OPERATIONS, Operation

WRITERS = "writers"
READERS = "readers"
SPARE = "spare"
TEXT = "The estate keeps its deeds in the north tower. The key hangs behind the clock."
FRAGMENT = "north tower"
TAG = "deeds"


@dataclass(frozen=True)
class Estate:
    """alice's project, shared rw with ``writers`` and ro with ``readers``, with a live and a deleted memory."""

    owner: Caller
    key: str
    project: str
    live: str
    gone: str


async def estate(world: World, key: str = "acme/estate", *, owner: str = "alice") -> Estate:
    """A new estate under ``key``."""
    alice = world.caller(owner)
    identified = await alice("project.identify", project=key)
    for group, access in ((WRITERS, "rw"), (READERS, "ro"), (SPARE, "ro")):
        await alice("project.share", project=key, group=group, access=access)
    live = await alice("memory.write", content=TEXT, tags=[TAG], project=key)
    gone = await alice("memory.write", content=f"Gone: {TEXT}", tags=[TAG], project=key)
    await alice("memory.delete", id=gone["id"])
    return Estate(alice, key, identified["project"]["id"], live["id"], gone["id"])


Recipe = Callable[[Estate], dict[str, Any]]

RECIPES: Mapping[str, Recipe] = {
    "project.identify": lambda on: {"project": on.key},
    "project.list": lambda on: {},
    "project.share": lambda on: {"project": on.key, "group": "newcomers", "access": "ro"},
    "project.unshare": lambda on: {"project": on.key, "group": SPARE},
    "memory.write": lambda on: {"content": "A new deed.", "project": on.key},
    "memory.get": lambda on: {"id": on.live},
    "memory.list": lambda on: {"project": on.key},
    "memory.search": lambda on: {"query": FRAGMENT, "project": on.key},
    "memory.update": lambda on: {"id": on.live, "content": "The deeds were moved."},
    "memory.patch": lambda on: {"id": on.live, "old_string": FRAGMENT, "new_string": "south tower"},
    "memory.delete": lambda on: {"id": on.live},
    "memory.restore": lambda on: {"id": on.gone},
    "memory.history": lambda on: {"id": on.live},
    "project.history": lambda on: {"project": on.key},
}

OWNERS_ONLY = frozenset({"project.share", "project.unshare"})
"""Operations that a grant does not allow, only ownership."""
OWN_ANSWER = frozenset({"project.identify", "project.list"})
"""Operations that refuse nobody: what a stranger gets is its own."""


def recipe(operation: Operation) -> Recipe:
    """How to build the operation's input. Broken where nobody has said how."""
    found = RECIPES.get(operation.name)
    if found is None:
        raise Broken(
            f"the operation {operation.name}",
            expected="a recipe in muniment.conformance.estate, so that its access is judged",
            seen="none",
        )
    return found


def every_operation(world: World) -> Iterator[tuple[Operation, Recipe]]:
    """Each operation of the registry, as of the contract that is judged, that any principal may call, with its
    recipe."""
    for operation in OPERATIONS.values():
        if operation.audience == "user" and world.has(operation):
            yield operation, recipe(operation)


def changing(world: World) -> Iterator[tuple[Operation, Recipe]]:
    """Each operation that changes something, with its recipe; identify is left out, as it changes nobody's."""
    for operation, build in every_operation(world):
        if not operation.read_only and operation.name not in OWN_ANSWER:
            yield operation, build


def of_either(place: Estate, payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An input as it is, and where it names the live memory or the deleted one, the same for the other."""
    yield payload
    others = {place.live: place.gone, place.gone: place.live}
    if payload.get("id") in others:
        yield {**payload, "id": others[payload["id"]]}


def hidden_code(operation: Operation) -> str:
    """The refusal of one who may not read what the recipe's input names."""
    return "not_found" if "id" in operation.input.model_fields else "unknown_project"
