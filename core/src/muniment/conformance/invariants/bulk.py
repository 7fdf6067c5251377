"""ACC-09: nothing empty, missing or general is ever taken as "everything".

What is asked of an operation is derived from its input in the registry, so that a later one is judged too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast, get_args, get_origin

from muniment.conformance.answers import found
from muniment.conformance.estate import (
    OWN_ANSWER,
    READERS,
    SPARE,
    WRITERS,
    Estate,
    changing,
    estate,
    every_operation,
    hidden_code,
)
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import Caller, World, same
from muniment.operations import Operation

RULES = Rules(STORAGE_AND_TRANSPORT)

MAY_BE_EMPTY = frozenset({("memory.patch", "new_string")})
"""Texts that select nothing, and mean something when they are empty."""
NARROWING = "tags"
"""The one list that narrows: an empty one leaves a read as it is, and is a value in a write."""
GENERAL = ("%", "*", "_", ".", "all", "null", "/")
"""What other systems take for "any"."""


@RULES(
    "ACC-09",
    "A scope, id, project, group or key that is empty, missing or general is refused and never taken as everything; an "
    "empty scope holds nothing.",
)
async def never_everything(world: World) -> None:
    _each_change_names_its_thing(world)
    bystander = await estate(world, "acme/bystander")
    for number, (operation, build) in enumerate(every_operation(world)):
        place = await estate(world, f"acme/bulk-{number}")
        payload = build(place)
        async with world.unchanged(f"a {operation.name} with an empty or general selector"):
            await _refuses_empty(place.owner, operation, payload)
            await _refuses_general(place, operation, payload)
        before = await _held(bystander)
        answer = await place.owner(operation.name, **payload)
        same(f"another project after {operation.name}", await _held(bystander), before)
        if operation.read_only and NARROWING in operation.input.model_fields:
            same(
                f"{operation.name} with no tags asked for",
                await place.owner(operation.name, **payload, **{NARROWING: []}),
                answer,
            )
    await _empty_scopes(world)


def _each_change_names_its_thing(world: World) -> None:
    """An operation that changes what is there requires at least one selector."""
    for operation, build in changing(world):
        if operation.name == "memory.write":
            continue
        named = set(_selectors(build(_NAMES), _NAMES))
        required = {name for name in named if operation.input.model_fields[name].is_required()}
        same(f"whether {operation.name} requires what it changes to be named", bool(required), True)


_NAMES = Estate(cast("Caller", None), "the/key", "the-project", "the-live", "the-gone")
"""An estate of names alone, to see which fields of an input name something."""


def _selectors(payload: dict[str, Any], place: Estate) -> Iterator[str]:
    """The fields of an input that name a part of the estate."""
    names = (place.key, place.project, place.live, place.gone, SPARE, READERS, WRITERS)
    for name, value in payload.items():
        if value in names:
            yield name


async def _refuses_empty(owner: Caller, operation: Operation, payload: dict[str, Any]) -> None:
    for name, field in operation.input.model_fields.items():
        kinds = set(_kinds(field.annotation))
        if str in kinds and (operation.name, name) not in MAY_BE_EMPTY:
            await owner.refused(("invalid_input", "content_empty"), operation.name, **{**payload, name: ""})
        if list in kinds and name != NARROWING:
            await owner.refused("invalid_input", operation.name, **{**payload, name: []})
        if field.is_required():
            rest = {other: value for other, value in payload.items() if other != name}
            await owner.refused("invalid_input", operation.name, **rest)
            await owner.refused("invalid_input", operation.name, **rest, **{name: None})


def _kinds(annotation: Any) -> Iterator[type]:
    """The plain types that a field takes: text for a choice of texts, list for a list of anything."""
    origin = get_origin(annotation)
    if annotation is str or origin is Literal:
        yield str
    elif origin in (list, tuple, set, frozenset):
        yield list
    else:
        for part in get_args(annotation):
            yield from _kinds(part)


async def _refuses_general(place: Estate, operation: Operation, payload: dict[str, Any]) -> None:
    """A name that means "any" elsewhere names nothing here."""
    if operation.name in OWN_ANSWER:
        return
    codes = ("invalid_input", "not_found", hidden_code(operation))
    for name in _selectors(payload, place):
        for general in (*GENERAL, f"{payload[name][:-1]}%", " "):
            await place.owner.refused(codes, operation.name, **{**payload, name: general})


async def _held(place: Estate) -> tuple[Any, ...]:
    """What an estate's owner holds in it."""
    live = await place.owner("memory.list", project=place.key)
    gone = await place.owner("memory.list", project=place.key, deleted=True)
    projects = (await place.owner("project.list"))["items"]
    return live["items"], gone["items"], [one for one in projects if one["id"] == place.project]


async def _empty_scopes(world: World) -> None:
    """A project without memories, and a caller without groups, hold nothing."""
    place = await estate(world, "acme/full")
    mine = (await place.owner("memory.write", content="The deeds of the owner, in the north tower."))["id"]
    await place.owner("project.identify", project="acme/void")
    for operation, build in every_operation(world):
        if operation.read_only and {"project", NARROWING} <= operation.input.model_fields.keys():
            full = build(place)
            void = {**full, "project": "acme/void"}
            same(
                f"{operation.name} in a project with memories",
                _ids(await place.owner(operation.name, **full)),
                [place.live],
            )
            same(f"{operation.name} in an empty project", _ids(await place.owner(operation.name, **void)), [])
    same("the deleted ones of an empty project", await _list(place.owner, project="acme/void", deleted=True), [])
    same("the list of the own scope", await _list(place.owner, scope="user"), [mine])
    for nobody in (world.caller("nobody"), world.caller("nobody", "no-such-group")):
        same("the list of a caller that reads nothing", await _list(nobody), [])
        same("the list of its own scope", await _list(nobody, scope="user"), [])
        same("the deleted ones that it lists", await _list(nobody, deleted=True), [])
        same("its hits", found(await nobody("memory.search", query="deeds in the north tower")), [])
        same("its projects", (await nobody("project.list"))["items"], [])
    reader = world.caller("rita", READERS)
    same("the list of a reader's own scope", await _list(reader, scope="user"), [])
    same("whether a reader's list holds the memory", place.live in await _list(reader), True)


async def _list(caller: Caller, **narrow: Any) -> list[str]:
    return _ids(await caller("memory.list", **narrow))


def _ids(page: dict[str, Any]) -> list[str]:
    return [item.get("memory", item)["id"] for item in page["items"]]
