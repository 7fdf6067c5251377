"""What a step of the differential run is, who takes it, and which steps a sequence is made of.

A step names what earlier answers held (a memory, an event with its token, a cursor) by how long ago it was seen, so
that any part of a sequence is a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from muniment import limits
from muniment.conformance.trail import brief
from muniment.models import CallContext, Principal, ProjectPolicy
from muniment.operations import OPERATIONS
from tests.differential.recipes import AGENTS, RECIPES, WRONG, Payload, ref

LOSE_LEASES = "every lease runs out"
"""A step that is no operation: the target's ``age``."""
OWNER = "its owner"
"""Who calls where that depends on what the input names: who made it, or the agent that an event is for."""


@dataclass(frozen=True)
class Step:
    """One step: an operation, or ``LOSE_LEASES``."""

    operation: str
    caller: str = ""
    payload: Payload = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        fields = ", ".join(f"{name}={brief(value)}" for name, value in self.payload.items())
        return f"{self.caller}: {self.operation}({fields})" if self.caller else self.operation


def _callers() -> dict[str, CallContext]:
    users = {
        "ann": CallContext(principal=Principal(user="ann")),
        "bob": CallContext(principal=Principal(user="bob", groups=frozenset({"writers"}))),
        "cyd": CallContext(principal=Principal(user="cyd", groups=frozenset({"readers", "$team.x"}))),
        "Ann": CallContext(principal=Principal(user="Ann", groups=frozenset({"readers", "writers"}))),
        "dot": CallContext(
            principal=Principal(user="dot.$x"),
            project_policy=ProjectPolicy.CREATE_MISSING,
            default_project="acme/app",
        ),
    }
    agents = {
        f"{agent.name}/{agent.instance}": CallContext(principal=Principal(user="ann", agent=agent), surface="mcp")
        for agent in AGENTS
    }
    platform = CallContext(principal=Principal(user="platform-service", platform=True), surface="platform")
    return {**users, **agents, "platform": platform}


CALLERS: Mapping[str, CallContext] = _callers()
_OFTEN = {"ann": 12, "bob": 4}
"""How often a user calls where it is not once."""
_BY_OWNER = {name for name, operation in OPERATIONS.items() if "id" in operation.input.model_fields} | {
    "project.share",
    "project.unshare",
}

_WEIGHTS: Mapping[str, int] = {
    "memory.write": 28,
    "memory.patch": 12,
    "memory.update": 8,
    "memory.search": 16,
    "memory.list": 10,
    "project.identify": 8,
    "project.share": 8,
    "project.unshare": 8,
    "memory.delete": 8,
    "memory.restore": 8,
    "exchange.task_completed": 8,
    "section.save": 8,
    "section.sync": 8,
    "section.read": 8,
    "event.enqueue": 20,
    "event.claim": 16,
    "event.ack": 12,
    LOSE_LEASES: 8,
    "twice": 12,
    "look": 10,
    "exhaust": 3,
    "flood": 1,
}
"""How often a part comes; 4 where it is not here."""


def _steps(operation: str) -> SearchStrategy[list[Step]]:
    """One call of an operation, mostly by one whom it is for, and with an input that is parsed."""
    served = [name for name, context in CALLERS.items() if OPERATIONS[operation].serves(context.principal)]
    often = [name for name in served for _ in range(_OFTEN.get(name, 1))]
    owner = [OWNER] * 2 * len(often) if operation in _BY_OWNER else []
    callers = st.integers(0, 15).flatmap(lambda draw: st.sampled_from([*CALLERS] if draw == 7 else [*owner, *often]))
    return st.tuples(callers, _sent(operation)).map(lambda drawn: [Step(operation, *drawn)])


def _sent(operation: str) -> SearchStrategy[Payload]:
    names = st.sampled_from([*OPERATIONS[operation].input.model_fields, "owner"])
    spoiled = st.tuples(RECIPES[operation], names, WRONG).map(lambda drawn: {**drawn[0], drawn[1]: drawn[2]})
    return st.integers(0, 15).flatmap(lambda draw: spoiled if draw == 7 else RECIPES[operation])


def _twice(parts: list[Step]) -> list[Step]:
    """The same request again, with its idempotency key."""
    (step,) = parts
    return [replace(step, payload={**step.payload, "idempotency_key": "twice"})] * 2


def _looked_at(parts: list[Step]) -> list[Step]:
    """A change of a memory, and what it left."""
    (step,) = parts
    named = {"id": step.payload["id"]}
    return [step, Step("memory.get", step.caller, named), Step("memory.history", step.caller, named)]


def _exhausted(drawn: tuple[str, int]) -> list[Step]:
    """One worker after the other dies with what it has claimed, until no attempt is left."""
    agent, limit = drawn
    name, _, instance = agent.partition("/")
    claimed = Step("event.claim", agent, {"limit": limit})
    dead = Step("event.dead", "platform", {"agent": ref(name, instance)})
    return [*[claimed, Step(LOSE_LEASES)] * limits.ATTEMPTS_MAX, claimed, dead]


def _flooded(drawn: tuple[str, int]) -> list[Step]:
    """More exchanges than an envelope keeps."""
    agent, number = drawn
    name, _, instance = agent.partition("/")
    return [
        Step(
            "exchange.task_completed",
            "platform",
            {
                "assignee": ref(name, instance),
                "title": f"task {entry}",
                "result": "ok",
                "surface_pod_id": "den",
                "dedupe_key": f"{number}-{entry}",
            },
        )
        for entry in range(limits.EXCHANGES_KEPT + 2)
    ]


def _parts() -> SearchStrategy[list[Step]]:
    """A step, or now and then some that belong together."""
    agents = st.sampled_from([name for name, context in CALLERS.items() if context.principal.agent])
    parts: dict[str, SearchStrategy[list[Step]]] = {name: _steps(name) for name in OPERATIONS}
    parts[LOSE_LEASES] = st.just([Step(LOSE_LEASES)])
    keyed = [name for name, operation in OPERATIONS.items() if "idempotency_key" in operation.input.model_fields]
    parts["twice"] = st.sampled_from(keyed).flatmap(_steps).map(_twice)
    changes = ("memory.update", "memory.patch", "memory.delete", "memory.restore")
    parts["look"] = st.sampled_from(changes).flatmap(_steps).map(_looked_at)
    parts["exhaust"] = st.tuples(agents, st.integers(1, 3)).map(_exhausted)
    parts["flood"] = st.tuples(agents, st.integers(1, 9)).map(_flooded)
    return st.sampled_from([name for name in parts for _ in range(_WEIGHTS.get(name, 4))]).flatmap(parts.__getitem__)


_PARTS = _parts()
_OPENING = (
    Step("project.identify", "ann", {"project": "acme/app"}),
    Step("project.share", "ann", {"project": "acme/app", "group": "writers", "access": "rw"}),
    Step("project.share", "ann", {"project": "acme/app", "group": "readers", "access": "ro"}),
    Step("memory.write", "ann", {"content": "the harbour lantern", "project": "acme/app", "tags": ["red"]}),
    Step("memory.write", "ann", {"content": "deploy_key v2.4.7"}),
)
"""How a sequence begins."""


REFUSED = [
    Step(name, next(caller for caller, context in CALLERS.items() if operation.serves(context.principal)), {"none": 1})
    for name, operation in OPERATIONS.items()
]
"""Every operation once, with a field that none has: the draw may never refuse some of them."""


def sequence(seed: str, length: int) -> list[Step]:
    """A sequence of ``length`` parts, the same for the same seed.

    Hypothesis draws one at a time, since it would vary the ones before; it does not shrink, since here any part of a
    sequence is a sequence.
    """
    made: list[list[Step]] = []
    varied = st.lists(_PARTS, min_size=length, max_size=length).filter(
        lambda parts: len({part[0].operation for part in parts}) > len(OPERATIONS) // 2
    )

    @hypothesis.seed(seed)
    @settings(
        max_examples=1,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(varied)
    def draw(parts: list[list[Step]]) -> None:
        made.extend(parts)

    draw()
    return [*_OPENING, *(step for part in made for step in part)]
