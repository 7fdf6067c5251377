"""Agents and a platform that checks of agent memory work with, and how to build an input for each of its operations.

The list of operations is the registry's. One that has no recipe here is a failure of the checks that need it, so that
an operation added later is judged at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from muniment.conformance.invariant import Broken
from muniment.conformance.target import StoredEntry, StoredEnvelope
from muniment.conformance.world import LONG_LEASE, Answer, Caller, World
from muniment.models import Agent
from muniment.operations import OPERATIONS, Operation

PLATFORM = "platform-service"
POD = "pod-1"
TIME = "0000-00-00T00:00:00.000Z"
"""As wide as every time in a digest."""

Entry = dict[str, Any]
"""An entry of a digest."""


@dataclass(frozen=True)
class Instance:
    """One agent instance: its own principal, and the platform's, which records and enqueues for it."""

    world: World
    agent: Agent
    own: Caller
    platform: Caller

    @property
    def ref(self) -> dict[str, str]:
        """The agent as an input names it."""
        return {"name": self.agent.name, "instance": self.agent.instance}

    @property
    def peer(self) -> str:
        """The agent as it is named among peers."""
        return f"{self.agent.name}/{self.agent.instance}"

    async def at_second(self) -> Instance:
        """The same at a second client."""
        return replace(self, own=await self.world.second(self.own), platform=await self.world.second(self.platform))

    async def record(
        self, title: str = "task", key: str | None = None, *, label: str = "", peers: Sequence[str] = ()
    ) -> Entry:
        """Let the platform record a completed task; the entry as a digest must carry it, with the key ``revision``."""
        receipt = await self.record_task(title, key or title[:100], label=label, peers=peers)
        return {
            "revision": receipt["recipients"][0]["revision"],
            "ts": TIME,
            "kind": "task-completed",
            "surfacePodId": POD,
            "surfaceLabel": label,
            "peers": list(peers),
            "takeaway": receipt["takeaway"],
        }

    async def record_task(self, title: str, key: str, *, label: str = "", peers: Sequence[str] = ()) -> Answer:
        """The receipt of a recorded task."""
        return await self.platform(
            "exchange.task_completed",
            assignee=self.ref,
            title=title,
            result="ok",
            surface_pod_id=POD,
            surface_label=label,
            peers=list(peers),
            dedupe_key=key,
        )

    async def record_many(self, count: int, title: str = "task") -> list[Entry]:
        """Some tasks, one after the other."""
        return [await self.record(f"{title} {number}") for number in range(count)]

    async def enqueue(self, **payload: Any) -> str:
        """The id of a new event."""
        return str((await self.platform("event.enqueue", agent=self.ref, payload=payload))["id"])

    async def claim(self, limit: int = 1, lease: int = LONG_LEASE) -> list[Answer]:
        """The deliveries of a claim."""
        return list((await self.own("event.claim", limit=limit, lease_seconds=lease))["items"])

    async def delivered(self, lease: int = LONG_LEASE, **payload: Any) -> Answer:
        """The delivery of a new event, which must be the oldest one."""
        event = await self.enqueue(**payload)
        items = await self.claim(lease=lease)
        if [item["id"] for item in items] != [event]:
            raise Broken("a claim of the only event", expected=event, seen=[item["id"] for item in items])
        return items[0]

    async def ack(self, delivery: Mapping[str, Any], token: str | None = None) -> str:
        """The outcome of an acknowledgement."""
        answer = await self.own("event.ack", id=delivery["id"], token=token or delivery["token"])
        return str(answer["outcome"])

    async def numbers(self) -> tuple[int, int]:
        """Revision and last seen revision; looking at them marks nothing as seen."""
        view = await self.own("section.read", sections=["long_term"])
        return view["revision"], view["last_seen_revision"]

    async def read(self, *names: str, **more: Any) -> dict[str, Any]:
        """Own sections by name."""
        return (await self.own("section.read", sections=list(names), **more))["sections"]

    async def stored_entries(self) -> list[StoredEntry]:
        """The agent's stored exchanges, read around the plugin, oldest first."""
        return [one for one in (await self.world.stored_agents()).exchanges if one.agent == self.agent]

    async def stored_envelope(self) -> StoredEnvelope | None:
        """The agent's stored envelope, read around the plugin."""
        envelopes = (await self.world.stored_agents()).envelopes
        return next((one for one in envelopes if one.agent == self.agent), None)


def instance(world: World, name: str, instance_id: str = "1", *, user: str = "keeper") -> Instance:
    """An agent instance that nothing is stored of."""
    agent = Agent(name=name, instance=instance_id)
    return Instance(
        world, agent, world.caller(user, agent=agent), world.caller(PLATFORM, surface="platform", platform=True)
    )


def compact(value: object) -> bytes:
    """Compact UTF-8 JSON, the keys in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def entry_of(carried: Mapping[str, Any]) -> Entry:
    """An entry without its revision and time."""
    return {name: value for name, value in carried.items() if name not in ("revision", "ts")}


def carried(delivery: Mapping[str, Any]) -> list[str]:
    """The takeaways that a delivery's digest carries, in its order; empty without a digest."""
    return [entry["takeaway"] for entry in delivery["payload"].get("memoryDigest", ())]


@dataclass(frozen=True)
class AgentsEstate:
    """Two agents; ``ada`` has an event that was delivered to her, with its token."""

    ada: Instance
    bea: Instance
    event: str
    token: str

    def rightful(self, operation: Operation) -> Caller:
        """One who may call the operation."""
        return self.ada.platform if operation.audience == "platform" else self.ada.own


async def agents_estate(world: World, name: str = "ada") -> AgentsEstate:
    """An estate of agents called ``name``."""
    ada, bea = instance(world, name), instance(world, name, "2", user="mate")
    await ada.record(f"before {name}")
    delivery = await ada.delivered(content="hello")
    return AgentsEstate(ada, bea, delivery["id"], delivery["token"])


Recipe = Callable[[AgentsEstate], dict[str, Any]]


def _exchange(on: AgentsEstate) -> dict[str, Any]:
    return {"surface_pod_id": POD, "dedupe_key": f"again {on.ada.peer}"}


AGENT_RECIPES: Mapping[str, Recipe] = {
    "section.read": lambda on: {"sections": ["long_term", "system_exchanges"]},
    "section.save": lambda on: {"section": "long_term", "value": "a note"},
    "section.sync": lambda on: {"mode": "patch", "runtime": "r", "sections": {"soul": {"value": "kind"}}},
    "section.log_cycle": lambda on: {"text": "looked around"},
    "section.read_shared": lambda on: {"agent": on.bea.ref},
    "event.claim": lambda on: {"limit": 2, "lease_seconds": LONG_LEASE},
    "event.extend": lambda on: {"id": on.event, "token": on.token, "lease_seconds": LONG_LEASE},
    "event.ack": lambda on: {"id": on.event, "token": on.token},
    "agent.register": lambda on: {"agent": on.ada.ref, "pods": ["den"]},
    "exchange.dm_concluded": lambda on: {**_exchange(on), "peers": [on.ada.ref, on.bea.ref], "messages": ["bye"]},
    "exchange.loop_tripped": lambda on: {**_exchange(on), "peers": [on.ada.ref, on.bea.ref]},
    "exchange.task_completed": lambda on: {**_exchange(on), "assignee": on.ada.ref, "title": "t", "result": "ok"},
    "event.enqueue": lambda on: {"agent": on.ada.ref, "payload": {"content": "hi"}},
    "event.dead": lambda on: {"agent": on.ada.ref},
    "event.requeue": lambda on: {"agent": on.ada.ref, "ids": [on.event]},
    "token.history": lambda on: {},
}


def agent_operations(world: World) -> Iterator[tuple[Operation, Recipe]]:
    """Each operation, as of the contract that is judged, that is an agent's or the platform's, with its recipe. Broken
    where nobody has said how."""
    for operation in OPERATIONS.values():
        if operation.audience == "user" or not world.has(operation):
            continue
        recipe = AGENT_RECIPES.get(operation.name)
        if recipe is None:
            raise Broken(
                f"the operation {operation.name}",
                expected="a recipe in muniment.conformance.agents_estate, so that its access is judged",
                seen="none",
            )
        yield operation, recipe
