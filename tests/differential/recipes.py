"""What may be sent to each operation of the registry, as strategies: mostly valid, with limits, stale versions and
reused idempotency keys among it.

An operation that has no recipe here fails the differential run, so that one added later is compared at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from muniment import limits
from muniment.agent_models import SectionName
from muniment.models import Agent
from muniment.sections import OBJECTS, TEXTS

Payload = dict[str, Any]
Strategy = SearchStrategy[Any]

AGENTS = (Agent(name="bot", instance="1"), Agent(name="bot", instance="2"), Agent(name="b.ot@x", instance="1"))
PODS = ("den", "DEN", "hall.1")


@dataclass(frozen=True)
class Known:
    """The id of a ``kind`` of thing that was made, counted back from the latest, modulo how many there are."""

    kind: str
    back: int


@dataclass(frozen=True)
class Token:
    """The token of a delivery of the event ``Known("delivered", back)``, counted back from its latest."""

    back: int
    delivery: int


@dataclass(frozen=True)
class LastCursor:
    """The cursor that was given last, of whatever query."""


def ref(name: str, instance: str) -> Payload:
    """An agent as an input names it."""
    return {"name": name, "instance": instance}


def _mostly(common: Any, *others: Any) -> Strategy:
    return st.sampled_from([*[common] * (3 * len(others)), *others])


def _known(kind: str) -> Strategy:
    return st.integers(0, 7).map(lambda back: Known(kind, back))


def _fields(needed: Mapping[str, Strategy], **optional: Strategy) -> SearchStrategy[Payload]:
    """A payload with the needed fields and at most two of the optional ones."""
    if not optional:
        return st.fixed_dictionaries(dict(needed))
    names = st.lists(st.sampled_from([*optional]), max_size=2, unique=True)
    return names.flatmap(lambda drawn: st.fixed_dictionaries({**needed, **{name: optional[name] for name in drawn}}))


_WORDS = ("harbour", "lantern", "v2.4.7", "deploy_key", "the", "Über", "über", "数据库", "é", "🎈", "$set", "a.b", "aa")
WORD = st.sampled_from(_WORDS)
END = "END."
"""How most texts end, so that a patch has something that occurs once."""
_SMALL_TEXT = st.lists(WORD, min_size=1, max_size=4).map(" ".join)
_LONG = ("harbour " * 900, "long words " * 2_000, "x" * limits.CONTENT_MAX, "x" * (limits.CONTENT_MAX + 1))
_ODD_TEXT = st.sampled_from((" ", "aaa", "\r\n harbour \r\n", *_LONG))
_USUAL_TEXT = st.lists(WORD, min_size=1, max_size=12).map(lambda words: " ".join([*words, END]))
TEXT = st.integers(0, 7).flatmap(lambda draw: _ODD_TEXT if draw == 3 else _USUAL_TEXT)
WRONG: Strategy = st.sampled_from(
    (None, "", "\x00", "\ud800", 0, -1, 1.5, True, [], {}, "no-such", [[]], {"a": None}, 2**31, 10**40)
)
"""What few fields can be."""
_JSON = st.recursive(
    st.sampled_from(
        (None, True, 0, 1, 1.0, -0.0, 1.5, 1e300, 2**31, 2**53 + 1, 2**63, -(2**70), "", "text", "$a", "🎈", "1")
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(("a", "$set", "a.b", "", "_id", "é", "0", "A")), inner, max_size=3),
    ),
    max_leaves=6,
)
_OBJECT = st.dictionaries(st.sampled_from(("content", "$where", "a.b", "_id", "")), _JSON, max_size=3)

MEMORY = _known("memory")
KEY = st.sampled_from(("acme/app", "acme/app", "acme/App", "lib.v2"))
PROJECT = st.one_of(KEY, KEY, _known("project"))
OWNED = st.one_of(_known("project"), KEY)
GROUP = st.sampled_from(("writers", "readers", "$team.x", "Writers"))
TAGS = st.lists(st.sampled_from(("red", "Red", "v1.2", "_id", "a-b", "harbour")), max_size=3)
SCOPE = st.sampled_from(("user", "project"))
VERSION = st.sampled_from((1, 1, 1, 2, 3))
ONCE = st.sampled_from(("once", "$once.", "Once"))
LIMIT = st.sampled_from((1, 2, 3, 200, 200))
CURSOR = st.just(LastCursor())

AGENT = st.sampled_from(AGENTS).map(lambda agent: ref(agent.name, agent.instance))
PEERS = st.sampled_from(AGENTS).flatmap(lambda one: st.tuples(st.just(ref(one.name, one.instance)), AGENT).map(list))
VISIBILITY = st.sampled_from(("private", "pod", "public"))
SECTION_VERSION = st.integers(0, 3)
LEASE = st.sampled_from((600, 600, 3_600))
DEDUPE = st.sampled_from(("d1", "d2", "$d.3", "d4", "D1", "d6", "d7"))
_DELIVERY = st.tuples(st.integers(0, 5), _mostly(0, 1, 2)).map(
    lambda drawn: {"id": Known("delivered", drawn[0]), "token": Token(*drawn)}
)


def _value(name: SectionName) -> Strategy:
    """A section's value, sometimes one that it cannot have."""
    if name in TEXTS:
        return _SMALL_TEXT
    if name in OBJECTS:
        return _OBJECT
    if name is SectionName.RELATIONSHIPS:
        entry = _fields(
            {"other": st.sampled_from(("bot/1", "bot/2", "$x.y")), "content": _SMALL_TEXT}, visibility=VISIBILITY
        )
    else:
        entry = _fields(
            {"date": st.sampled_from(("2026-01-01", "2026-01-02", "2026-02-30")), "content": _SMALL_TEXT},
            visibility=VISIBILITY,
        )
    return st.lists(entry, max_size=3)


_WRITABLE = [
    *[name for name in SectionName if name not in (SectionName.CYCLES, SectionName.SYSTEM_EXCHANGES)] * 3,
    *SectionName,
]
_SAVED = st.sampled_from(_WRITABLE).flatmap(
    lambda name: _fields(
        {"section": st.just(name.value), "value": _value(name)}, visibility=VISIBILITY, version=SECTION_VERSION
    )
)


def _synced(names: list[SectionName]) -> Strategy:
    return st.fixed_dictionaries(
        {
            name.value: _fields({"value": _value(name)}, visibility=VISIBILITY, version=_mostly(None, 0, 1, 2))
            for name in names
        }
    )


_EXCHANGE = {"surface_pod_id": st.sampled_from(PODS), "dedupe_key": DEDUPE}
_LABEL = {"surface_label": _SMALL_TEXT, "idempotency_key": ONCE}

RECIPES: Mapping[str, SearchStrategy[Payload]] = {
    "project.identify": _fields({"project": PROJECT}),
    "project.list": _fields({}, limit=LIMIT, cursor=CURSOR),
    "project.share": _fields(
        {"project": OWNED, "group": GROUP, "access": st.sampled_from(("rw", "ro"))}, version=VERSION
    ),
    "project.unshare": _fields({"project": OWNED, "group": GROUP}, version=VERSION),
    "project.history": _fields({"project": PROJECT}, limit=LIMIT, cursor=CURSOR),
    "memory.write": _fields({"content": TEXT}, tags=TAGS, scope=SCOPE, project=PROJECT, idempotency_key=ONCE),
    "memory.get": _fields({"id": MEMORY}),
    "memory.list": _fields(
        {"limit": LIMIT}, scope=SCOPE, project=PROJECT, tags=TAGS, deleted=st.booleans(), cursor=CURSOR
    ),
    "memory.search": _fields(
        {"query": _SMALL_TEXT, "limit": st.sampled_from((2, 10, 50))},
        scope=SCOPE,
        project=PROJECT,
        tags=TAGS,
        min_score=st.sampled_from((0.0, 0.3, 0.6)),
        fusion=st.sampled_from(("rrf", "weighted")),
        cursor=CURSOR,
    ),
    "memory.update": st.one_of(
        _fields({"id": MEMORY, "content": TEXT}, tags=TAGS, version=VERSION),
        _fields({"id": MEMORY, "tags": TAGS}, content=TEXT, version=VERSION),
        _fields({"id": MEMORY, "project": PROJECT}, content=TEXT, scope=SCOPE, version=VERSION),
        _fields({"id": MEMORY}, scope=SCOPE, version=VERSION),
    ),
    "memory.patch": _fields(
        {
            "id": MEMORY,
            "old_string": st.one_of(WORD, st.just(END), st.just(END), st.just(END)),
            "new_string": st.one_of(_SMALL_TEXT.map(lambda text: f"{text} {END}"), st.just("")),
        },
        version=VERSION,
        idempotency_key=ONCE,
    ),
    "memory.delete": _fields({"id": MEMORY}, version=VERSION),
    "memory.restore": _fields({"id": st.one_of(_known("deleted"), _known("deleted"), MEMORY)}, version=VERSION),
    "memory.history": _fields({"id": MEMORY, "limit": LIMIT}, cursor=CURSOR),
    "agent.register": _fields({"agent": AGENT, "pods": st.lists(st.sampled_from(PODS), max_size=2)}),
    "section.read": _fields(
        {},
        sections=st.lists(st.sampled_from([name.value for name in SectionName]), min_size=1, max_size=3),
        exchanges=st.integers(1, 50),
    ),
    "section.read_shared": _fields({"agent": AGENT}),
    "section.save": _SAVED,
    "section.sync": _fields(
        {
            "mode": st.sampled_from(("patch", "full")),
            "runtime": st.sampled_from(("r1", "r2")),
            "sections": st.lists(st.sampled_from(_WRITABLE), min_size=1, max_size=3, unique=True).flatmap(_synced),
        }
    ),
    "section.log_cycle": _fields({"text": st.one_of(_SMALL_TEXT, st.just("x" * 501))}, version=SECTION_VERSION),
    "exchange.dm_concluded": _fields(
        {
            **_EXCHANGE,
            "peers": PEERS,
            "messages": st.lists(st.sampled_from(("bye", "NO_REPLY", "so\x07 long" * 60)), max_size=2),
        },
        **_LABEL,
    ),
    "exchange.loop_tripped": _fields({**_EXCHANGE, "peers": PEERS}, turns=st.integers(1, 9), **_LABEL),
    "exchange.task_completed": _fields(
        {**_EXCHANGE, "assignee": AGENT, "title": st.sampled_from(("t", "语" * 300)), "result": st.just("ok")},
        peers=st.lists(st.sampled_from(("bot/1", "bot/2", "p" * 64)), max_size=3),
        **_LABEL,
    ),
    "event.enqueue": _fields({"agent": AGENT, "payload": _OBJECT}, idempotency_key=ONCE),
    "event.claim": _fields({"limit": st.sampled_from((1, 2, 20)), "lease_seconds": LEASE}),
    "event.extend": st.tuples(_DELIVERY, LEASE).map(lambda drawn: {**drawn[0], "lease_seconds": drawn[1]}),
    "event.ack": _DELIVERY,
    "event.dead": _fields({"agent": AGENT, "limit": LIMIT}, cursor=CURSOR),
    "event.requeue": _fields({"agent": AGENT, "ids": st.lists(_known("event"), min_size=1, max_size=3)}),
    "token.history": _fields({}, limit=LIMIT, cursor=CURSOR),
}
