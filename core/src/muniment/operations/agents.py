"""The operations of agent memory: an agent's sections and events, and what the platform records and enqueues."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from muniment import digests, limits, sections
from muniment.agent_models import (
    AckReceipt,
    AgentReceipt,
    DeadPage,
    DeliveryPage,
    EnvelopeView,
    EventReceipt,
    ExchangeReceipt,
    RequeueReceipt,
    SectionReceipt,
    SharedView,
)
from muniment.inputs import AgentId, Cursor, Id, IdempotencyKey, Input, ListLimit, few, storable, telling
from muniment.operations import section_schemas
from muniment.operations.operation import Operation

Section = Literal[
    "long_term",
    "soul",
    "shared",
    "dedup_state",
    "runtime_meta",
    "daily",
    "relationships",
    "cycles",
    "system_exchanges",
]
VisibilityName = Literal["private", "pod", "public"]
SectionVersion = Annotated[int, Field(ge=0, le=2**31 - 1)]
DedupeKey = Annotated[str, Field(min_length=1, max_length=limits.DEDUPE_KEY_MAX), AfterValidator(storable)]
LeaseSeconds = Annotated[int, Field(ge=1, le=limits.LEASE_SECONDS_MAX)]
Label = Annotated[str, Field(max_length=limits.SURFACE_LABEL_MAX), AfterValidator(storable)]
Token = Annotated[str, Field(min_length=1, max_length=limits.ID_MAX), AfterValidator(storable)]
Message = Annotated[str, Field(max_length=limits.CONTENT_MAX), AfterValidator(storable)]


class AgentRef(Input):
    """An agent instance by name."""

    name: AgentId
    instance: AgentId


class _FromClient(Input):
    """An input from which the fields that are the server's are dropped."""

    @model_validator(mode="before")
    @classmethod
    def _without_server_fields(cls, sent: Any) -> Any:
        return sections.without_server_fields(sent)


class AgentRegister(Input):
    agent: AgentRef
    pods: Annotated[list[AgentId], Field(max_length=limits.PODS_MAX)]


class SectionRead(Input):
    sections: Annotated[list[Section], Field(min_length=1, max_length=len(get_args(Section)))] | None = None
    exchanges: Annotated[
        int, Field(ge=1, le=limits.EXCHANGES_KEPT, description="how many of system_exchanges, newest first")
    ] = limits.EXCHANGES_KEPT


class SectionSave(_FromClient):
    section: Annotated[Section, WithJsonSchema(section_schemas.SECTION)]
    value: Annotated[Any, WithJsonSchema(section_schemas.VALUE)]
    visibility: VisibilityName | None = None
    version: SectionVersion | None = None


class SyncedSection(_FromClient):
    value: Any
    visibility: VisibilityName | None = None
    version: SectionVersion | None = None


def _few_sections(sent: Any) -> Any:
    return few(sent, get_args(Section))


class SectionSync(Input):
    mode: Literal["full", "patch"]
    runtime: AgentId
    sections: Annotated[
        dict[Section, SyncedSection],
        Field(min_length=1),
        BeforeValidator(_few_sections),
        WithJsonSchema(section_schemas.synced()),
    ]


class SectionLogCycle(Input):
    text: Annotated[
        str, Field(min_length=1, max_length=limits.CONTENT_MAX), AfterValidator(storable), AfterValidator(telling)
    ]
    version: SectionVersion | None = None


class SectionReadShared(Input):
    agent: AgentRef


class _Exchange(Input):
    surface_pod_id: AgentId
    surface_label: Label = ""
    dedupe_key: DedupeKey
    idempotency_key: IdempotencyKey | None = None


class ExchangeDmConcluded(_Exchange):
    peers: Annotated[list[AgentRef], Field(min_length=2, max_length=2)]
    messages: Annotated[
        list[Message],
        Field(max_length=limits.SENDER_MESSAGES_MAX, description="the sender's messages, the last one last"),
    ]


class ExchangeLoopTripped(_Exchange):
    peers: Annotated[list[AgentRef], Field(min_length=2, max_length=2)]
    turns: Annotated[int, Field(ge=1, le=10_000)] = 8
    minutes: Annotated[int, Field(ge=1, le=100_000)] = 30


class ExchangeTaskCompleted(_Exchange):
    assignee: AgentRef
    title: Annotated[
        str, Field(min_length=1, max_length=limits.QUERY_MAX), AfterValidator(storable), AfterValidator(telling)
    ]
    result: Annotated[
        str,
        Field(min_length=1, max_length=200, description="a pull request's URL, or a status"),
        AfterValidator(storable),
        AfterValidator(telling),
    ]
    peers: Annotated[list[AgentId], Field(max_length=limits.PEERS_MAX)] = Field(default_factory=list[str])


def _payload(value: dict[str, Any]) -> dict[str, Any]:
    sections.json_value(value)
    reserved = sorted(set(value) & set(digests.RESERVED))
    if reserved:
        raise ValueError(f"has {reserved[0]!r}, which a delivery adds; rename that key")
    size = sections.json_size(value)
    if size > limits.EVENT_PAYLOAD_BYTES_MAX:
        raise ValueError(f"has {size:,} bytes; at most {limits.EVENT_PAYLOAD_BYTES_MAX:,} are kept; send a reference")
    return value


class EventEnqueue(Input):
    agent: AgentRef
    payload: Annotated[dict[str, Any], AfterValidator(_payload)]
    idempotency_key: IdempotencyKey | None = None


class EventClaim(Input):
    limit: Annotated[int, Field(ge=1, le=limits.CLAIM_MAX)] = 1
    lease_seconds: LeaseSeconds = limits.LEASE_SECONDS_DEFAULT


class EventExtend(Input):
    id: Id
    token: Token
    lease_seconds: LeaseSeconds = limits.LEASE_SECONDS_DEFAULT


class EventAck(Input):
    id: Id
    token: Token


class EventDead(Input):
    agent: AgentRef
    limit: ListLimit = limits.LIST_LIMIT_DEFAULT
    cursor: Cursor | None = None


class EventRequeue(Input):
    agent: AgentRef
    ids: Annotated[list[Id], Field(min_length=1, max_length=limits.LIST_LIMIT_MAX)]


AGENT_OPERATIONS = (
    Operation(
        name="section.read",
        title="Read own sections",
        description="Your own sections, all or some. Reading system_exchanges marks what the reply holds as seen.",
        input=SectionRead,
        output=EnvelopeView,
        idempotent=True,
        audience="agent",
        touches="caller",
    ),
    Operation(
        name="section.save",
        title="Save section",
        description="Replace one of your sections. Private unless you open it. Not for cycles (use log_cycle) and "
        "never for system_exchanges.",
        input=SectionSave,
        output=SectionReceipt,
        destructive=True,
        audience="agent",
        touches="caller",
    ),
    Operation(
        name="section.sync",
        title="Sync sections",
        description="Send several sections at once: patch merges daily by date and relationships by other, full "
        "replaces. The same payload on the same day changes nothing.",
        input=SectionSync,
        output=SectionReceipt,
        destructive=True,
        idempotent=True,
        audience="agent",
        touches="caller",
    ),
    Operation(
        name="section.log_cycle",
        title="Log cycle",
        description="Append a line on what you did in this cycle; old ones go.",
        input=SectionLogCycle,
        output=SectionReceipt,
        audience="agent",
        touches="caller",
    ),
    Operation(
        name="section.read_shared",
        title="Read shared sections",
        description="What another agent opened to you, by pod or to all.",
        input=SectionReadShared,
        output=SharedView,
        read_only=True,
        idempotent=True,
        audience="agent",
        touches="caller",
    ),
    Operation(
        name="event.claim",
        title="Claim events",
        description="Take your oldest waiting events under a lease. Each has a token; acknowledge with it, or the "
        "event comes again.",
        input=EventClaim,
        output=DeliveryPage,
        audience="agent",
        touches="caller",
    ),
    Operation(
        name="event.extend",
        title="Extend lease",
        description="Keep an event for longer while you still work on it.",
        input=EventExtend,
        output=AckReceipt,
        idempotent=True,
        audience="agent",
        touches="caller",
    ),
    Operation(
        name="event.ack",
        title="Acknowledge event",
        description="Say that an event is done; what its digest carried counts as seen. Repeating it does nothing.",
        input=EventAck,
        output=AckReceipt,
        idempotent=True,
        audience="agent",
        touches="caller",
    ),
    Operation(
        name="agent.register",
        title="Register agent",
        description="Tell which pods an agent instance is in; replaces what was told before.",
        input=AgentRegister,
        output=AgentReceipt,
        idempotent=True,
        audience="platform",
        touches="caller",
    ),
    Operation(
        name="exchange.dm_concluded",
        title="Record a concluded direct conversation",
        description="Record for both agents that their direct conversation ended, with the sender's last message.",
        input=ExchangeDmConcluded,
        output=ExchangeReceipt,
        audience="platform",
        touches="caller",
    ),
    Operation(
        name="exchange.loop_tripped",
        title="Record a stopped loop",
        description="Record for both agents that a guard stopped their conversation.",
        input=ExchangeLoopTripped,
        output=ExchangeReceipt,
        audience="platform",
        touches="caller",
    ),
    Operation(
        name="exchange.task_completed",
        title="Record a completed task",
        description="Record for its assignee that a task was completed.",
        input=ExchangeTaskCompleted,
        output=ExchangeReceipt,
        audience="platform",
        touches="caller",
    ),
    Operation(
        name="event.enqueue",
        title="Enqueue event",
        description="Put an event into an agent's queue. Retrying? Send the same idempotency_key.",
        input=EventEnqueue,
        output=EventReceipt,
        audience="platform",
        touches="caller",
    ),
    Operation(
        name="event.dead",
        title="List dead events",
        description="An agent's events that were delivered too often without being acknowledged.",
        input=EventDead,
        output=DeadPage,
        read_only=True,
        idempotent=True,
        audience="platform",
        touches="caller",
    ),
    Operation(
        name="event.requeue",
        title="Requeue dead events",
        description="Make an agent's dead events claimable again.",
        input=EventRequeue,
        output=RequeueReceipt,
        audience="platform",
        touches="caller",
    ),
)
