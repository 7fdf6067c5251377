"""TRA-01 to TRA-08: a transport adds nothing to what an engine says, and takes nothing away."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Any

from muniment import errors
from muniment.conformance.agents_estate import agent_operations, agents_estate, compact, instance
from muniment.conformance.answers import found, ranker_scores
from muniment.conformance.estate import TEXT, estate, every_operation
from muniment.conformance.invariant import Broken, Feature, NotExercised
from muniment.conformance.rules import TRANSPORT, Rules
from muniment.conformance.seams import LoadingEmbedder
from muniment.conformance.target import Refused
from muniment.conformance.trail import brief
from muniment.conformance.world import Answer, Caller, World, holds, same
from muniment.errors import ContentTooLong, Internal, InvalidInput, MunimentError, VersionConflict
from muniment.limits import CONTENT_MAX, SECTION_BYTES_MAX
from muniment.operations import respelled
from muniment.sections import KEYS, OBJECTS, TEXTS
from muniment.serving import incidents

RULES = Rules(TRANSPORT)

SAYING = 'Not so: "ünïcode" \\ 記憶 😀,\nread it with memory.get, or section.read_shared, and ask again.'
SECRETS = ("select content from memories", "/var/lib/private", "hunter2")
FOREIGN_ID = "made-elsewhere"
"""An id that no transport gave, so that nothing is found by it."""
OWN_NAMES = ("unknown", "_meta", "operation", "context", "headers", "jsonrpc")
"""Fields that no operation has; some are words of protocols, which a transport may take for its own."""
ENVELOPE_MAX = 700
"""Characters of a reply to a read besides the content."""
SOON = 10.0
"""Seconds for what must not wait for the model."""
PIECE = 65_536
SMALL_PIECE = 500
BUFFERS = 16_000_000
"""Bytes of a request that kernels and libraries may take from a client while nobody reads it."""


async def each_call(world: World, name: str) -> AsyncGenerator[tuple[Caller, str, dict[str, Any]]]:
    """Every operation of the registry, with one who may call it and an input that it takes."""
    for number, (operation, build) in enumerate(every_operation(world)):
        place = await estate(world, f"acme/{name}-{number}")
        yield place.owner, operation.name, build(place)
    agents = await agents_estate(world, name)
    for operation, recipe in agent_operations(world):
        yield agents.rightful(operation), operation.name, recipe(agents)


@RULES(
    "TRA-01",
    "Every operation of the registry can be called, by whom the connection is of, and each refusal arrives with its "
    "code, message and details unchanged; over a network those of the server's own parts with their code.",
)
async def reachable(world: World) -> None:
    transport = world.transport
    refusals = [*each_refusal()]
    async for caller, operation, payload in each_call(world, "reached"):
        with transport.engine.failing(ContentTooLong(SAYING, operation=operation)):
            await _refused_as(world, caller, operation, payload, ContentTooLong(SAYING, operation=operation))
        same("what reached the engine", transport.engine.asked, (operation, caller.context.principal))
        await caller(operation, **payload)
    alice = world.caller("alice")
    for refusal in refusals:
        with transport.engine.failing(refusal):
            await _refused_as(world, alice, "memory.get", {"id": "an id"}, refusal)


def each_refusal() -> list[MunimentError]:
    """One of each class but ``Internal``, with a message and details, and some with those of the class alone."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MunimentError)]
    special = (MunimentError, Internal, InvalidInput, VersionConflict)
    details: errors.Details = {"text": "é", "number": 7, "ratio": 0.5, "flag": True, "nothing": None}
    plain = [kind for kind in kinds if kind not in special]
    return [
        InvalidInput("sections.daily", SAYING),
        VersionConflict(7),
        *(kind(SAYING, **details) for kind in plain),
        *(kind() for kind in plain),
    ]


async def _refused_as(
    world: World, caller: Caller, operation: str, payload: dict[str, Any], refusal: MunimentError
) -> None:
    arrived = await caller.refused(refusal.code, operation, **payload)
    if world.transport.target.network and isinstance(refusal, tuple(incidents.OF_THE_SERVER)):
        # What is told of these is TRA-09's.
        return
    message = respelled(refusal.message, world.transport.target.spelled)
    same(f"the message of {refusal.code}", arrived.message, message)
    _same_json(f"the details of {refusal.code}", arrived.details, refusal.details)


@RULES("TRA-02", "The same call gives the same record or receipt as the engine, every field of it.")
async def same_records(world: World) -> None:
    engine = world.transport.engine
    async for caller, operation, payload in each_call(world, "same"):
        answer = await caller(operation, **payload)
        said = engine.answered and engine.answered.model_dump(mode="json")
        _same_json(f"the answer of {operation}", answer, said)


def _same_json(what: str, seen: object, expected: object) -> None:
    """Broken unless equal as JSON, in which 1, 1.0 and true are three values."""
    same(what, *(json.dumps(value, sort_keys=True, ensure_ascii=False) for value in (seen, expected)))


@RULES("TRA-03", "Unknown fields are refused, not ignored, whoever calls.")
async def unknown_fields(world: World) -> None:
    async for caller, operation, payload in each_call(world, "fields"):
        async with world.unchanged(f"unknown fields of {operation}"):
            for field in OWN_NAMES:
                refusal = await caller.refused("invalid_input", operation, **{**payload, field: "x"})
                same("the field that the refusal names", refusal.details.get("field"), field)
        await caller(operation, **payload)


@RULES("TRA-04", "An internal error shows an id of its own, never a message, a path or a query.")
async def internal_errors(world: World) -> None:
    alice = world.caller("alice")
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("memory.search", {"query": "tower"}),
        ("memory.write", {"content": TEXT}),
        ("project.list", {}),
    ]
    secret = " ".join(SECRETS)
    unforeseen = [kind(secret) for kind in (RuntimeError, KeyError, OSError, MunimentError, Internal)]
    unforeseen += [MunimentError(secret, path=SECRETS[1]), Internal(secret, id=FOREIGN_ID)]
    ids: list[str] = []
    for operation, payload in payloads:
        for error in unforeseen:
            with world.transport.engine.failing(error):
                refusal = await alice.refused("internal", operation, **payload)
            shown = f"{refusal.message} {json.dumps(dict(refusal.details), ensure_ascii=False)}"
            # Of an internal error any message may be named after the class.
            for part in (*SECRETS, FOREIGN_ID if isinstance(error, Internal) else type(error).__name__):
                same(f"whether a refusal of {operation} holds {part!r}", part in shown, False)
            same("the details of an internal error", list(refusal.details), ["id"])
            holds(str(refusal.details["id"]) in refusal.message, "the message", expected="the id", seen=refusal.message)
            ids.append(str(refusal.details["id"]))
        answer = await alice(operation, **payload)
        holds(bool(answer), f"the answer of {operation} afterwards", expected="a record", seen="no field")
    same("how many ids so many errors have", len(set(ids)), len(ids))


@RULES(
    "TRA-06",
    "A request over its size is payload_too_large, and refused before it is read whole; the largest that an operation "
    "takes passes, and so does one that comes in many small pieces; each whether its length was said or not.",
    features=frozenset({Feature.NETWORK}),
)
async def sizes(world: World) -> None:
    target = world.transport.target
    if not target.can_send:
        raise NotExercised(
            "the target is of a network, and lacks a body_limit, encoded or send; or say network = False"
        )
    await _over_the_limit(world, target.body_limit or 0)
    await _largest(world)
    await _in_small_pieces(world)


async def _over_the_limit(world: World, limit: int) -> None:
    alice = world.caller("alice")
    whole = limit + 4 * BUFFERS
    for announced, most in ((whole, BUFFERS), (None, limit + BUFFERS)):
        sent: list[int] = []
        pieces = _pieces(itertools.repeat(b" " * PIECE, whole // PIECE), sent)
        try:
            reply = await world.transport.send(alice.context, "memory.write", pieces, announced)
            raise Broken("a request over the limit", expected="refusal payload_too_large", seen=brief(reply.answer))
        except Refused as refusal:
            same("the refusal of a request over the limit", refusal.code, "payload_too_large")
        what = f"bytes taken of a request {_told(announced)}"
        holds(sum(sent) <= most, what, expected=f"at most {most}", seen=sum(sent))


async def _largest(world: World) -> None:
    """A sync of all sections, each as large as it may be, and each of its characters escaped where that costs most."""
    ada = instance(world, "largest").own
    sections = full_sections("\x7f")
    payload = {"mode": "patch", "runtime": "r", "sections": {name: {"value": sections[name]} for name in sections}}
    body = world.transport.target.encoded("section.sync", payload).replace(b"\x7f", rb"\u007f")
    for announced in (len(body), None):
        whole = _pieces(body[start : start + PIECE] for start in range(0, len(body), PIECE))
        await world.transport.send(ada.context, "section.sync", whole, announced)
    for name, value in sections.items():
        stored = (await ada("section.read", sections=[name]))["sections"][name]["value"]
        same(f"whether the largest {name} is stored as it was sent", stored == value, True)


def full_sections(filler: str) -> dict[str, Any]:
    """Each section that a sync may hold, full of one character of a byte."""
    frames: dict[str, Callable[[str], Any]] = {
        **dict.fromkeys(sorted(TEXTS), str),
        **dict.fromkeys(sorted(OBJECTS), lambda text: {"full": text}),
        **{name: lambda text, key=key: [{key: "2026-01-31", "content": text}] for name, key in KEYS.items()},
    }
    return {name: frame(filler * (SECTION_BYTES_MAX - len(compact(frame(""))))) for name, frame in frames.items()}


async def _in_small_pieces(world: World) -> None:
    alice = world.caller("alice")
    for number, length_said in enumerate((True, False)):
        text = f"{number}" + "😀" * (CONTENT_MAX - 1)
        body = world.transport.target.encoded("memory.write", {"content": text})
        announced = len(body) if length_said else None
        pieces = _pieces(body[start : start + SMALL_PIECE] for start in range(0, len(body), SMALL_PIECE))
        reply = await world.transport.send(alice.context, "memory.write", pieces, announced)
        got = await alice("memory.get", id=reply.answer["id"])
        same(f"whether the largest text is stored as it came, {_told(announced)}", got["content"] == text, True)


def _told(announced: int | None) -> str:
    return "without a length" if announced is None else "that says its length"


async def _pieces(pieces: Iterable[bytes], sent: list[int] | None = None) -> AsyncIterator[bytes]:
    for piece in pieces:
        if sent is not None:
            sent.append(len(piece))
        yield piece
        await asyncio.sleep(0)


@RULES("TRA-07", "While the model is loading, a client is greeted, and its searches are answered by words.")
async def while_loading(world: World) -> None:
    alice = world.caller("alice")
    memory = (await alice("memory.write", content=TEXT))["id"]
    loading = LoadingEmbedder(world.embedder)
    early = await world.with_embedder(loading, alice)
    try:
        page = await _soon(early, "memory.search", query="north tower")
        same("what is found by its words while the model loads", found(page), [memory])
        same("whether the page says that it is degraded", bool(page["degraded"]), True)
        same("the memory, read", (await _soon(early, "memory.get", id=memory))["content"], TEXT)
    finally:
        loading.loaded.set()
    page = await _soon(early, "memory.search", query="north tower")
    holds("meaning" in ranker_scores(page, memory), "the hit afterwards", expected="a score by meaning", seen=page)


async def _soon(caller: Caller, operation: str, **payload: Any) -> Answer:
    answering = asyncio.ensure_future(caller(operation, **payload))
    done, _ = await asyncio.wait({answering}, timeout=SOON)
    holds(bool(done), f"{operation} while the model loads", expected=f"an answer within {SOON:g} s", seen="none")
    return await answering


@RULES(
    "TRA-08",
    f"A record is sent once per reply; a read is its content and at most {ENVELOPE_MAX} characters more, escapes "
    "aside.",
)
async def sent_once(world: World) -> None:
    alice = world.caller("alice")
    contents = [f"sentinel{number} " + "plain words of no weight " * 400 for number in range(3)]
    ids = [(await alice("memory.write", content=content, tags=["sentinel"]))["id"] for content in contents]
    body = await _body(world, alice, "memory.get", id=ids[0])
    more = len(body) - len(contents[0])
    holds(more <= ENVELOPE_MAX, "a read's characters besides the content", expected=f"<= {ENVELOPE_MAX}", seen=more)
    for operation, payload in (
        ("memory.get", {"id": ids[0]}),
        ("memory.list", {"tags": ["sentinel"]}),
        ("memory.search", {"query": "sentinel0 sentinel1 sentinel2", "limit": 3}),
    ):
        body = await _body(world, alice, operation, **payload)
        shown = 1 if operation == "memory.get" else 3
        times = [body.count(f"sentinel{number} ") for number in range(shown)]
        same(f"how often the reply of {operation} holds each content", times, [1] * shown)
    await _agents_sent_once(world)


async def _agents_sent_once(world: World) -> None:
    place = await agents_estate(world)
    ada = place.ada
    await ada.own("section.save", section="long_term", value="sentinel of a section")
    await ada.enqueue(content="sentinel of an event")
    for operation, payload, kept in (
        ("section.read", {"sections": ["long_term"]}, "sentinel of a section"),
        ("event.claim", {"limit": 1}, "sentinel of an event"),
    ):
        body = await _body(world, ada.own, operation, **payload)
        same(f"how often the reply of {operation} holds its content", body.count(kept), 1)


async def _body(world: World, caller: Caller, operation: str, **payload: Any) -> str:
    return (await world.transport.reply(operation, payload, caller.context)).body
