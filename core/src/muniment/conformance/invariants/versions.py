"""MUT-01 to MUT-05: versions, and what happens when two edit at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from muniment.conformance.answers import moment
from muniment.conformance.estate import changing, estate
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.target import Refused
from muniment.conformance.world import Answer, Caller, World, holds, same

RULES = Rules(STORAGE_AND_TRANSPORT)

TEXTS = {
    "plain words": "The backup runs at two.",
    "one character": "x",
    "an emoji family with joiners": "ship it \U0001f468\u200d\U0001f469\u200d\U0001f467 today",
    "combining marks as sent": "cafe\u0301 re\u0301sume\u0301 \u1e9b\u0323",
    "composed accents as sent": "caf\u00e9 r\u00e9sum\u00e9",
    "CJK": "我们选择了 PostgreSQL 作为主数据库",
    "right to left with marks": "\u05e9\u05dc\u05d5\u05dd \u202eabc\u202c",
    "CRLF and trailing spaces": "a\r\nb  \r\n\r\n",
    "tabs, leading white space, a zero width space": " \t a\tb\u200bc",
    "white space alone": " \n ",
    "the highest code point": "\U0010ffff\ufffe",
    "query syntax": '\' OR 1=1 -- $where {"$gt":""} <-> & | ! :* %s %(x)s \\N \\x00 {y}',
    "64,000 astral characters": "\U0001f600" * 64_000,
}


@RULES("MUT-01", "A new memory has version 1, and what is read back is the content, code point for code point.")
async def new_memory(world: World) -> None:
    alice = world.caller("alice")
    elsewhere = await world.second(alice)
    for name, text in TEXTS.items():
        receipt = await alice("memory.write", content=text, tags=["kept", "As-Sent.1"])
        same(f"the receipt's version for {name}", receipt["version"], 1)
        for reader in (alice, elsewhere):
            memory = await reader("memory.get", id=receipt["id"])
            same(f"the content read back of {name}", memory["content"], text)
            same("the tags read back", sorted(memory["tags"]), ["As-Sent.1", "kept"])
            same("the version read back", memory["version"], 1)
            same("the scope read back", (memory["scope"], memory["project_id"]), ("user", None))
    listed: dict[str, int] = {}
    page: Answer = {"cursor": None}
    while not listed or page["cursor"]:
        page = await alice("memory.list", limit=200, cursor=page["cursor"])
        listed.update({memory["content"]: memory["version"] for memory in page["items"]})
        holds(bool(page["items"]), "a page of the list", expected="at least one memory", seen=page)
    same("the contents in the list", listed, dict.fromkeys(TEXTS.values(), 1))


@RULES(
    "MUT-02",
    "An applied mutation raises the version by exactly 1; id and created_at never change, updated_at never goes back.",
)
async def one_step(world: World) -> None:
    place = await estate(world)
    alice, bob = place.owner, world.caller("bob", "writers")
    before = await alice("memory.get", id=place.live)
    steps: list[tuple[Caller, str, dict[str, Any]]] = [
        (alice, "memory.update", {"content": "first text, second text"}),
        (bob, "memory.patch", {"old_string": "second", "new_string": "third"}),
        (alice, "memory.update", {"tags": ["a", "b"]}),
        (alice, "memory.update", {"scope": "user"}),
        (alice, "memory.update", {"project": place.key, "tags": [], "content": "moved text"}),
        (bob, "memory.delete", {}),
        (bob, "memory.restore", {}),
        (alice, "memory.update", {"content": "moved text"}),
    ]
    for caller, operation, payload in steps:
        receipt = await caller(operation, id=place.live, **payload)
        same(f"the receipt's version after {operation}", receipt["version"], before["version"] + 1)
        same(f"the receipt's id after {operation}", receipt["id"], place.live)
        holds(
            moment(receipt["updated_at"]) >= moment(before["updated_at"]),
            f"updated_at after {operation}",
            expected=f"not before {before['updated_at']}",
            seen=receipt["updated_at"],
        )
        before = {**before, "version": receipt["version"], "updated_at": receipt["updated_at"]}
        if operation == "memory.delete":
            continue
        memory = await alice("memory.get", id=place.live)
        for field in ("id", "created_at", "version", "updated_at"):
            same(f"{field} after {operation}", memory[field], before[field])
        same(f"last_edited_by after {operation}", memory["last_edited_by"], caller.user)


@RULES(
    "MUT-03",
    "Every mutating operation takes a version; a stale one is version_conflict naming the current version, and "
    "every field, the vectors, the terms and the audit trail are as before.",
)
async def stale_version(world: World) -> None:
    for number, (operation, build) in enumerate(changing(world)):
        if operation.name == "memory.write":
            continue
        holds(
            "version" in operation.input.model_fields,
            f"the input of {operation.name}",
            expected="a field version",
            seen=", ".join(operation.input.model_fields),
        )
        place = await estate(world, f"acme/stale-{number}")
        alice = place.owner
        payload = build(place)
        current = await _current(alice, place.key, payload)
        for stale in (current - 1, current + 1):
            if stale < 1:
                continue
            async with world.unchanged(f"a {operation.name} with the stale version {stale}"):
                refusal = await alice.refused("version_conflict", operation.name, **payload, version=stale)
                same("the current version in the refusal", refusal.details.get("current_version"), current)
        receipt = await alice(operation.name, **payload, version=current)
        same(f"the version after {operation.name} with the current one", receipt["version"], current + 1)


async def _current(alice: Caller, key: str, payload: dict[str, Any]) -> int:
    """The current version of what a payload names."""
    if "id" in payload:
        return (await alice("memory.history", id=payload["id"], limit=1))["items"][0]["version"]
    projects = (await alice("project.list"))["items"]
    return next(project["version"] for project in projects if project["key"] == key)


@RULES(
    "MUT-04",
    "Without a version N racing edits are each applied or refused and none is lost: the final version is 1 + "
    "applied, every applied edit is in the text, and only a patch is retried.",
)
async def racing_edits(world: World) -> None:
    alice = world.caller("alice")
    await _racing_patches(world, alice, await world.second(alice))
    await _racing_updates(world, alice, await world.second(alice))


async def _racing_patches(world: World, alice: Caller, again: Caller) -> None:
    words = [f"line-{number}" for number in range(6)]
    written = await alice("memory.write", content="\n".join(f"{word}: open" for word in words))
    async with world.race(len(words)):
        answers = await asyncio.gather(
            *(
                (alice, again)[number % 2].attempt(
                    "memory.patch", id=written["id"], old_string=f"{word}: open", new_string=f"{word}: done"
                )
                for number, word in enumerate(words)
            )
        )
    applied = _applied(answers)
    memory = await alice("memory.get", id=written["id"])
    done = [word for word in words if f"{word}: done" in memory["content"]]
    kept = [word for word, answer in zip(words, answers, strict=True) if not isinstance(answer, Refused)]
    same("the patches that are in the text", done, kept)
    same("the version after the patches", memory["version"], 1 + applied)
    same("how many of the racing patches were applied, each being retried", applied, len(words))


async def _racing_updates(world: World, alice: Caller, again: Caller) -> None:
    written = await alice("memory.write", content="before the race")
    texts = [f"text of racer {number}" for number in range(4)]
    async with world.race(len(texts)):
        answers = await asyncio.gather(
            *(
                (alice, again)[number % 2].attempt("memory.update", id=written["id"], content=text)
                for number, text in enumerate(texts)
            )
        )
    applied = _applied(answers)
    memory = await alice("memory.get", id=written["id"])
    same("how many of the racing updates were applied, none being retried", applied, 1)
    same("the version after the updates", memory["version"], 2)
    winner = next(text for text, answer in zip(texts, answers, strict=True) if not isinstance(answer, Refused))
    same("the content after the race", memory["content"], winner)


def _applied(answers: Sequence[Answer | Refused]) -> int:
    """How many racers were applied; the others must have lost by version."""
    losers = [answer.code for answer in answers if isinstance(answer, Refused)]
    same("the refusals of the racers", losers, ["version_conflict"] * len(losers))
    return len(answers) - len(losers)


START = "the start"
EDITS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("memory.update", {"content": "one was here"}, {"content": "one was here"}),
    ("memory.update", {"tags": ["one"]}, {"tags": ["one"]}),
    ("memory.patch", {"old_string": START, "new_string": "an end"}, {"content": "an end"}),
    ("memory.delete", {}, {}),
)
"""Edits that race, and the fields that each leaves changed; a deleted memory has none to look at."""
RACES = (
    *pairwise(EDITS),
    (EDITS[0], EDITS[0]),
    (EDITS[1], ("memory.update", {"tags": ["other"]}, {"tags": ["other"]})),
    (EDITS[3], EDITS[0]),
)
"""Who wins where one has more to do than the other is not known; so some do as much as each other."""


@RULES("MUT-05", "Of two racers with the same version exactly one is applied, and nothing of the other is left.")
async def same_version(world: World) -> None:
    alice = world.caller("alice")
    again = await world.second(alice)
    for first, second in RACES:
        memory = (await alice("memory.write", content=START, tags=["kept"]))["id"]
        async with world.race(2):
            answers = await asyncio.gather(
                alice.attempt(first[0], id=memory, version=1, **first[1]),
                again.attempt(second[0], id=memory, version=1, **second[1]),
            )
        race = f"{first[0]} against {second[0]}"
        winner = (first, second)[_winner(race, answers)]
        await _only_the_winner_is_left(world, alice, memory, race, winner)
    await _racing_restores(world, alice, again)
    await _racing_shares(world, alice, again)


def _winner(race: str, answers: Sequence[Answer | Refused], version: int = 2) -> int:
    """Which racer was applied; the other must have been refused by state, or by the winner's ``version``."""
    applied = [place for place, answer in enumerate(answers) if not isinstance(answer, Refused)]
    same(f"how many were applied of {race}", len(applied), 1)
    for answer in answers:
        if isinstance(answer, Refused):
            allowed = ("version_conflict", "not_found")
            holds(answer.code in allowed, f"the loser of {race}", expected=" or ".join(allowed), seen=answer)
            if answer.code == "version_conflict":
                same(
                    f"the current version that the loser of {race} is told", answer.details["current_version"], version
                )
    return applied[0]


async def _only_the_winner_is_left(
    world: World, alice: Caller, memory: str, race: str, winner: tuple[str, dict[str, Any], dict[str, Any]]
) -> None:
    operation, _, changes = winner
    trail = (await alice("memory.history", id=memory))["items"]
    same(f"the trail after {race}", (trail[0]["version"], trail[0]["action"]), (2, operation))
    same(f"how many entries the trail has after {race}", len(trail), 2)
    if operation == "memory.delete":
        await alice.refused("not_found", "memory.get", id=memory)
        await alice("memory.restore", id=memory, version=2)
    expected = {"content": START, "tags": ["kept"], **changes}
    after = await alice("memory.get", id=memory)
    same(f"the memory after {race}", {field: after[field] for field in expected}, expected)
    fresh = (await alice("memory.write", content=expected["content"]))["id"]
    same(f"the search entries after {race}", await _entries(world, memory), await _entries(world, fresh))


async def _entries(world: World, memory: str) -> tuple[list[str], dict[str, int]]:
    """The hashes of a memory's passages, and its terms."""
    stored = await world.probe()
    hashes = sorted(passage.hash for passage in stored.passages if passage.memory_id == memory)
    return hashes, {term.term: term.frequency for term in stored.terms if term.memory_id == memory}


async def _racing_restores(world: World, alice: Caller, again: Caller) -> None:
    memory = (await alice("memory.write", content=START))["id"]
    await alice("memory.delete", id=memory)
    async with world.race(2):
        answers = await asyncio.gather(
            *(caller.attempt("memory.restore", id=memory, version=2) for caller in (alice, again))
        )
    _winner("restore against restore", answers, version=3)
    same("the version after racing restores", (await alice("memory.get", id=memory))["version"], 3)


async def _racing_shares(world: World, alice: Caller, again: Caller) -> None:
    await alice("project.identify", project="acme/raced")
    async with world.race(2, "change_share"):
        answers = await asyncio.gather(
            *(
                caller.attempt("project.share", project="acme/raced", group=group, access="rw", version=1)
                for caller, group in ((alice, "one"), (again, "other"))
            )
        )
    winner = ("one", "other")[_winner("share against share", answers)]
    project = (await alice("project.list"))["items"][0]
    same("the project after racing shares", (project["version"], project["shares"]), (2, {winner: "rw"}))
