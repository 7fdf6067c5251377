"""Concurrent callers of one engine who write down what they were told: writes and patches, exchanges, events and acks.

A caller that is told ``storage_unavailable`` sends the same request again; any other refusal ends the run with an
AssertionError, and any other exception with itself. ``check`` compares what was told with what is read in the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from muniment import limits
from muniment.engine import Engine
from muniment.errors import MunimentError, StorageUnavailable
from muniment.models import Agent, CallContext, Principal

WRITERS, APPENDERS, SENDERS, WORKERS = 6, 4, 2, 4
PATCHES = 9
"""Patches of each memory."""
PAUSE = 0.05
"""Seconds before a request is sent again, and before a worker looks for events again."""

Answer = dict[str, Any]
PLATFORM = CallContext(principal=Principal(user="platform", platform=True))
PADDING = "語" * 200
"""So that a digest holds a few exchanges only, and an acknowledgement leaves the others unseen."""
BUSY = Agent(name="busy", instance="1")
"""Gets more exchanges than its envelope keeps."""
CALM = [Agent(name="calm", instance=str(number)) for number in range(8)]
"""Get the others, none of which the cap takes, and the events."""


class Load:
    """What the callers did and were told: 2,000 requests, or a ``part`` of them. ``lease`` is in seconds.

    ``due`` is set once a third of them are acknowledged.
    """

    def __init__(self, engine: Engine, *, part: int = 1, lease: int = 4) -> None:
        self.engine = engine
        self.lease = lease
        self.memories, self.appends, self.events = 13 // part, 105 // part, 200 // part
        """Of one writer, one appender, one sender."""
        sent = SENDERS * self.events
        self.total = WRITERS * self.memories * (1 + PATCHES) + APPENDERS * self.appends + 2 * sent
        """Writes and patches, appends, enqueued events and acks in all."""
        self.due = asyncio.Event()
        self.done = 0
        self.unavailable = 0
        self.receipts: dict[tuple[str, str], tuple[Answer, Answer]] = {}
        """The request and the receipt by caller and idempotency key."""
        self.revisions: dict[Agent, list[int]] = {agent: [] for agent in (BUSY, *CALM)}
        self.titles: dict[tuple[Agent, str], int] = {}
        """The revision of an exchange, by the agent and the takeaway."""
        self.enqueued = set[str]()
        self.leases: dict[str, datetime] = {}
        """When the latest delivery's lease ends, by event."""
        self.carried = set[tuple[Agent, str]]()
        """Agents and takeaways that an acknowledged delivery carried."""
        self.acks = Counter[tuple[str, str]]()

    async def run(self) -> None:
        """All callers at once, until everything is written and every event is acknowledged."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self.watch())
            callers = [
                *(group.create_task(self.write(number)) for number in range(WRITERS)),
                *(group.create_task(self.append(number)) for number in range(APPENDERS)),
                *(group.create_task(self.send(number)) for number in range(SENDERS)),
                *(group.create_task(self.work(number)) for number in range(WORKERS)),
            ]
            await asyncio.wait(callers)
            watching.cancel()

    async def call(self, operation: str, sent: Answer, context: CallContext) -> Answer:
        """The answer, asked for again as long as the storage is unavailable."""
        while True:
            try:
                answer = await self.engine.call(operation, sent, context)
                return answer.model_dump(mode="json")
            except StorageUnavailable:
                self.unavailable += 1
                await asyncio.sleep(PAUSE)
            except MunimentError as refusal:
                raise AssertionError(f"{operation} was refused: {refusal.code}, {refusal}") from refusal

    async def once(self, operation: str, key: str, sent: Answer, context: CallContext) -> Answer:
        """The receipt of a request with an idempotency key."""
        request = {**sent, "idempotency_key": key}
        receipt = await self.call(operation, request, context)
        self.receipts[context.principal.user, key] = {"operation": operation, **request}, receipt
        self.count()
        return receipt

    def count(self) -> None:
        """One more was acknowledged."""
        self.done += 1
        if self.done == self.total // 3:
            self.due.set()

    async def write(self, number: int) -> None:
        """Memories of one user, each patched line by line."""
        context = writer(number)
        for memory in range(self.memories):
            receipt = await self.once("memory.write", f"{memory}", {"content": f"memory {memory}\nend"}, context)
            for line in range(PATCHES):
                patch = {"id": receipt["id"], "old_string": "end", "new_string": f"line {line}\nend"}
                await self.once("memory.patch", f"{memory}-{line}", patch, context)

    async def append(self, number: int) -> None:
        """Exchanges: of every four two for ``BUSY``, one for a calm agent, one for a pair of them."""
        for turn in range(self.appends):
            key = f"exchange {number}-{turn}"
            first, second = CALM[(turn + number) % len(CALM)], CALM[(turn + number + 3) % len(CALM)]
            sent = {"surface_pod_id": "pod", "dedupe_key": key}
            if turn % 4 == 3:
                sent |= {"peers": [named(first), named(second)], "messages": [f"{key} {PADDING}"]}
                receipt = await self.once("exchange.dm_concluded", key, sent, PLATFORM)
            else:
                sent |= {
                    "assignee": named(first if turn % 4 == 2 else BUSY),
                    "title": f"{key} {PADDING}",
                    "result": "ok",
                }
                receipt = await self.once("exchange.task_completed", key, sent, PLATFORM)
            for one in receipt["recipients"]:
                agent = Agent(**one["agent"])
                self.revisions[agent].append(one["revision"])
                self.titles[agent, receipt["takeaway"]] = one["revision"]

    async def send(self, number: int) -> None:
        """Events for the calm agents in turn."""
        for turn in range(self.events):
            agent = CALM[turn % len(CALM)]
            sent = {"agent": named(agent), "payload": {"turn": turn}}
            receipt = await self.once("event.enqueue", f"event {number}-{turn}", sent, PLATFORM)
            self.enqueued.add(receipt["id"])

    async def work(self, number: int) -> None:
        """Claim and acknowledge for half of the calm agents, beside another worker, until every event is done."""
        while len(self.acknowledged()) < SENDERS * self.events:
            for agent in CALM[number % 2 :: 2]:
                page = await self.call("event.claim", {"limit": 3, "lease_seconds": self.lease}, own(agent))
                self.note_leases(page["items"])
                for delivery in page["items"]:
                    await self.acknowledge(agent, delivery)
                await asyncio.sleep(PAUSE)

    def note_leases(self, deliveries: list[Answer]) -> None:
        """No event is delivered again before its lease is over."""
        for delivery in deliveries:
            event, until = delivery["id"], datetime.fromisoformat(delivery["lease_until"])
            at = until - timedelta(seconds=self.lease)
            assert self.leases.get(event, at) <= at, "an event was delivered again before its lease was over"
            self.leases[event] = until

    async def acknowledge(self, agent: Agent, delivery: Answer) -> None:
        """Acknowledge an event, every third one twice."""
        event = delivery["id"]
        told = {"id": event, "token": delivery["token"]}
        outcomes = [
            (await self.call("event.ack", told, own(agent)))["outcome"]
            for _ in range(2 if len(self.leases) % 3 == 0 else 1)
        ]
        self.acks.update((event, outcome) for outcome in outcomes)
        if outcomes[0] != "stale_receipt":
            digest = delivery["payload"].get("memoryDigest", ())
            self.carried |= {(agent, entry["takeaway"]) for entry in digest}
            self.count()

    def acknowledged(self) -> set[str]:
        """The events that are done."""
        return {event for event, outcome in self.acks if outcome != "stale_receipt"}

    async def watch(self) -> None:
        """Revision and last seen of every agent only rise."""
        before: dict[Agent, tuple[int, int]] = dict.fromkeys((BUSY, *CALM), (0, 0))
        while True:
            for agent, (revision, last_seen) in before.items():
                now = await self.numbers(agent)
                assert now[0] >= revision, f"the revision of {agent} went back"
                assert now[1] >= last_seen, f"last seen of {agent} went back"
                before[agent] = now
                await asyncio.sleep(PAUSE)

    async def numbers(self, agent: Agent) -> tuple[int, int]:
        """Revision and last seen."""
        view = await self.call("section.read", {"sections": ["long_term"]}, own(agent))
        return view["revision"], view["last_seen_revision"]


async def check(load: Load) -> None:
    """What was told is what there is: nothing is missing, nothing is doubled, nothing was seen that was not carried."""
    await _memories(load)
    await _replays(load)
    await _exchanges(load)
    _events(load)


async def _memories(load: Load) -> None:
    text = "".join(f"line {line}\n" for line in range(PATCHES))
    for number in range(WRITERS):
        page = await load.call("memory.list", {"limit": limits.LIST_LIMIT_MAX}, writer(number))
        contents = sorted(item["content"] for item in page["items"])
        assert contents == sorted(f"memory {memory}\n{text}end" for memory in range(load.memories))
        assert {item["version"] for item in page["items"]} == {1 + PATCHES}


async def _replays(load: Load) -> None:
    """The same request again gives the receipt of the first time."""
    contexts = {context.principal.user: context for context in (PLATFORM, *map(writer, range(WRITERS)))}
    for (user, _), (request, receipt) in list(load.receipts.items())[::5]:
        sent = {name: value for name, value in request.items() if name != "operation"}
        assert await load.call(request["operation"], sent, contexts[user]) == receipt


async def _exchanges(load: Load) -> None:
    for agent, revisions in load.revisions.items():
        revision, last_seen = await load.numbers(agent)
        assert sorted(revisions) == list(range(1, revision + 1))
        assert last_seen <= revision
        if agent in CALM:
            assert revision <= limits.EXCHANGES_KEPT, "the cap would excuse what was seen and never carried"
            carried = {load.titles[told] for told in load.carried if told[0] == agent}
            assert set(range(1, last_seen + 1)) <= carried
            payload = await _delivered(load, agent)
            digest = [load.titles[agent, entry["takeaway"]] for entry in payload.get("memoryDigest", ())]
            assert digest == list(range(last_seen + 1, last_seen + 1 + len(digest)))
            assert last_seen + len(digest) + payload.get("memoryDigestPending", 0) == revision
        view = await load.call("section.read", {"sections": ["system_exchanges"]}, own(agent))
        kept = [entry["revision"] for entry in view["sections"]["system_exchanges"]["value"]]
        assert kept == list(range(revision, max(0, revision - limits.EXCHANGES_KEPT), -1))


async def _delivered(load: Load, agent: Agent) -> Answer:
    """The payload of a new event; a delivery whose answer was lost is waited for again."""
    await load.call("event.enqueue", {"agent": named(agent), "payload": {}}, PLATFORM)
    while True:
        page = await load.call("event.claim", {"lease_seconds": 1}, own(agent))
        for delivery in page["items"]:
            return delivery["payload"]
        await asyncio.sleep(PAUSE)


def _events(load: Load) -> None:
    assert load.acknowledged() == load.enqueued
    assert len(load.enqueued) == SENDERS * load.events
    assert all(times == 1 for (_, outcome), times in load.acks.items() if outcome == "acknowledged")


def named(agent: Agent) -> dict[str, str]:
    """An agent as an input names it."""
    return {"name": agent.name, "instance": agent.instance}


def own(agent: Agent) -> CallContext:
    """The agent's own call."""
    return CallContext(principal=Principal(user="keeper", agent=agent))


def writer(number: int) -> CallContext:
    """A writer's call."""
    return CallContext(principal=Principal(user=f"writer-{number}"))
