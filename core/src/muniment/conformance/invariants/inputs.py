"""READ-05: input that no surface takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from muniment.conformance.agents_estate import agent_operations, agents_estate
from muniment.conformance.estate import TEXT, estate, every_operation
from muniment.conformance.invariants import agent_inputs
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import Caller, World, holds, same
from muniment.operations import Operation

RULES = Rules(STORAGE_AND_TRANSPORT)

HOSTILE_TEXTS = ("a\x00b", "\x00", "a\ud800b", "\udfff")
WRONG_TYPES: tuple[Any, ...] = ({"a": 1}, 1.5, True, [[1]])
LIMITS = {
    "limit": (0, -1, 201, 2**31, "1", 1.0),
    "version": (0, -1, 2**31, "1", 1.0),
    "tags": (["a"] * 33, ["a b"], [""], ["a" * 65], "a", [1], ["é"], ["a\n"]),
    "project": ("", "a" * 201, "a b", "ä", "a\n"),
    "id": ("", "a" * 65),
    "query": ("", "q" * 2_001),
    "group": ("", "g" * 201, " \n", "a\nb"),
    "access": ("", "RW", "owner"),
    "scope": ("", "User", "public"),
    "idempotency_key": ("", "k" * 201),
    "cursor": ("", "nonsense", "W10", "c" * 1_001),
    "fusion": ("", "best"),
    "min_score": ("0.5", [0.5]),
    "deleted": ("true", 1, 0),
}


@RULES(
    "READ-05",
    "NUL, lone surrogates, wrong types, unknown fields, out-of-range limits and a cursor of another query are "
    "invalid_input naming the field, and nothing is stored.",
)
async def refused_inputs(world: World) -> None:
    for number, (operation, build) in enumerate(every_operation(world)):
        place = await estate(world, f"acme/inputs-{number}")
        payload = build(place)
        async with world.unchanged(f"hostile inputs to {operation.name}"):
            for field, value in _hostile(operation):
                await _refuses(place.owner, operation.name, {**payload, field: value}, field)
            for field in ("unknown", "user", "Content", ""):
                await _refuses(place.owner, operation.name, {**payload, field: "x"}, field)
            for field in [name for name in payload if operation.input.model_fields[name].is_required()]:
                await _refuses(place.owner, operation.name, {k: v for k, v in payload.items() if k != field}, field)
        await place.owner(operation.name, **payload)
    await _foreign_cursors(world)
    await _to_agents_operations(world)


async def _to_agents_operations(world: World) -> None:
    """An agent's and the platform's operations take as little."""
    place = await agents_estate(world)
    for operation, recipe in agent_operations(world):
        caller, payload = place.rightful(operation), recipe(place)
        async with world.unchanged(f"hostile inputs to {operation.name}"):
            for field, value in agent_inputs.hostile(operation, payload):
                await _refuses(caller, operation.name, {**payload, field: value}, field)
            for field in ("unknown", "user", "Token", ""):
                await _refuses(caller, operation.name, {**payload, field: "x"}, field)
            for field in [name for name in payload if operation.input.model_fields[name].is_required()]:
                await _refuses(caller, operation.name, {k: v for k, v in payload.items() if k != field}, field)
        await caller(operation.name, **payload)


def _hostile(operation: Operation) -> Iterator[tuple[str, Any]]:
    for name, field in operation.input.model_fields.items():
        takes_text = "str" in str(field.annotation)
        takes_number = name in ("min_score",)
        for value in WRONG_TYPES:
            if not (takes_number and value == 1.5) and not (name == "deleted" and value is True):
                yield name, value
        if takes_text and "list" not in str(field.annotation):
            for text in HOSTILE_TEXTS:
                yield name, text
        if name == "tags":
            for text in HOSTILE_TEXTS:
                yield name, [text]
        for value in LIMITS.get(name, ()):
            yield name, value
        if name == "limit" and operation.name == "memory.search":
            yield name, 51
        if field.is_required():
            yield name, None
    if operation.name == "memory.write":
        yield "content", ""
    if operation.name == "memory.patch":
        yield "old_string", ""


async def _refuses(caller: Caller, operation: str, payload: dict[str, Any], field: str) -> None:
    refusal = await caller.refused("invalid_input", operation, **payload)
    named = str(refusal.details.get("field"))
    fits = named == field or named.startswith(f"{field}.") or (field == "" and named == "input")
    holds(fits, f"the field that the refusal of {operation} names", expected=field, seen=named)
    holds("\x00" not in refusal.message, "the message of a refusal", expected="no NUL", seen=refusal.message)


async def _foreign_cursors(world: World) -> None:
    alice = world.caller("alice")
    for number in range(3):
        await alice("project.identify", project=f"acme/cursor-{number}")
        await alice("memory.write", content=f"{TEXT} {number}", tags=["t", "u"])
    memory = (await alice("memory.write", content="cursor", tags=["t", "u"]))["id"]
    await alice("memory.update", id=memory, tags=["t"])
    queries: list[tuple[str, dict[str, Any]]] = [
        ("memory.list", {}),
        ("memory.list", {"tags": ["t"]}),
        ("memory.list", {"scope": "user"}),
        ("memory.search", {"query": "north tower"}),
        ("memory.search", {"query": "north tower", "tags": ["t"]}),
        ("memory.search", {"query": "clock"}),
        ("memory.history", {"id": memory}),
        ("project.list", {}),
    ]
    cursors: list[str] = []
    for operation, query in queries:
        page = await alice(operation, **query, limit=1)
        holds(page["cursor"] is not None, f"a page of one of {operation}", expected="a cursor", seen=page["cursor"])
        cursors.append(page["cursor"])
    for place, (operation, query) in enumerate(queries):
        for other, cursor in enumerate(cursors):
            if other != place:
                refusal = await alice.refused("invalid_input", operation, **query, limit=1, cursor=cursor)
                same("the field that a foreign cursor's refusal names", refusal.details.get("field"), "cursor")
        continued = await alice(operation, **query, limit=1, cursor=cursors[place])
        same(f"how many items the own cursor of {operation} gives", len(continued["items"]), 1)
