"""What a plugin's author gives the suite: a target, which makes and breaks subjects of the plugin.

The suite drives a subject only through the engine. What it cannot see that way a target supplies: an isolated
start, a second client, raw reads that bypass the plugin, faults and crashes. A plugin's descriptor names, as
its ``conformance`` dotted path, a callable ``target(url: str | None = None)`` that gives a ``StorageTarget``, an
``EmbedderTarget`` or a ``TransportTarget``; without a ``url`` it uses what the plugin can start by itself, and
raises ``NotRun`` where it can start nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from muniment.conformance.stored import (
    Stored,
    StoredAgents,
    StoredAudit,
    StoredDedupeKey,
    StoredEntry,
    StoredEnvelope,
    StoredEvent,
    StoredPassage,
    StoredTerm,
)
from muniment.engine import Engine
from muniment.errors import MunimentError
from muniment.models import Agent, CallContext, ProjectPolicy
from muniment.ports import Callers, Embedder, Storage

__all__ = [
    "AgentFaultPoint",
    "EmbedderTarget",
    "FailingEmbedder",
    "FailureKind",
    "FaultPoint",
    "NotRun",
    "Refused",
    "RemoteClient",
    "Reply",
    "Server",
    "StorageTarget",
    "Stored",
    "StoredAgents",
    "StoredAudit",
    "StoredDedupeKey",
    "StoredEntry",
    "StoredEnvelope",
    "StoredEvent",
    "StoredPassage",
    "StoredTerm",
    "Subject",
    "Target",
    "TransportTarget",
]


class NotRun(Exception):
    """Raised by a target whose component cannot be had here; the message says which, and how to get it."""


class FaultPoint(StrEnum):
    """Where a write can be made to fail: as it stores the named part."""

    MEMORY = "memory"
    AUDIT = "audit"
    PASSAGES = "passages"
    TERMS = "terms"
    RECEIPT = "receipt"
    PROJECT = "project"


class AgentFaultPoint(StrEnum):
    """Where a change of one agent's memory can be made to fail: as it changes the agent's envelope or an event."""

    ENVELOPE = "envelope"
    EVENT = "event"


@dataclass
class Subject:
    """One isolated, empty place to keep memories, with the first client on it.

    ``storage`` is migrated and open. Subclass it to carry what your target needs to find the place again.
    """

    storage: Storage


S = TypeVar("S", bound=Subject)


class Target:
    """What every kind of target says of their plugin.

    ``name`` is the plugin's (``storage-postgres``) and, as ``muniment-<name>``, its distribution, of which
    the report reads the version; set ``distribution`` where that differs. ``real`` is False for an emulated
    backend. ``contract`` and ``capabilities`` are the descriptor's, or nothing is judged. ``known_failures`` map the
    id of an invariant that is known not to hold to a link where that is being worked on; the report still says "not
    conformant", and one that holds after all is an error. ``over`` is what keeps the data of an embedder or a
    transport that is judged, None for the reference storage; whoever runs the suite sets it.
    """

    name: str = "unnamed"
    distribution: str | None = None
    real: bool = True
    contract: str = "1.0"
    capabilities: frozenset[str] = frozenset()
    known_failures: Mapping[str, str] = {}
    over: StorageTarget[Any] | None = None

    def describe(self) -> Mapping[str, str]:
        """The configuration that is judged, for the report; passwords and keys redacted."""
        return {}

    def is_of(self, since: str) -> bool:
        """Whether its contract is this version, or a later one."""
        own, other = (tuple(map(int, version.split("."))) for version in (self.contract, since))
        return own >= other


class StorageTarget(Target, ABC, Generic[S]):
    """How the suite gets at a storage plugin: ``open``, ``second`` and ``probe``.

    Without ``fault``, ``fault_agent`` and ``layout`` the invariants that need them are ``not-exercised``, which is not
    conformant. Without ``age`` the suite waits for leases to run out, and tries less. ``crash`` kills what keeps the
    data: a server, or, for a library that keeps it in a file, the process that uses the library, where the target then
    runs the first client. Each subject is opened, used and left on one event loop,
    which may be another one, in another thread, for the next subject.
    """

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[S]:
        """A fresh subject: empty, sharing no data with any other that is open, and gone afterwards.

        Leaving the context must also work where ``subject.storage`` is closed already, or was killed.
        """

    @abstractmethod
    def second(self, subject: S) -> AbstractAsyncContextManager[Storage]:
        """Another open client on the subject's data, with a connection of its own."""

    @abstractmethod
    async def probe(self, subject: S) -> Stored:
        """What is committed, read around the plugin."""

    def fault(self, subject: S, point: FaultPoint) -> AbstractAsyncContextManager[None]:
        """While it is entered, a write that reaches ``point`` fails inside the backend; reads work as ever.

        A database does this with a trigger that raises; the error may reach the caller as any exception.
        """
        raise NotImplementedError

    def fault_agent(self, subject: S, point: AgentFaultPoint, agent: Agent) -> AbstractAsyncContextManager[None]:
        """While it is entered, a change of ``agent``'s envelope, or of any of its events, fails inside the backend.

        Other agents' are stored, and reads work as ever. An envelope is changed by an append, an acknowledgement that
        raises last seen, and a write of its sections. A database does this with a trigger that raises for the
        agent's rows.
        """
        raise NotImplementedError

    async def layout(self, subject: S) -> frozenset[str]:
        """Every table or collection, column and constraint that there is, a line each, read around the plugin.

        Indexes that belong to one space come and go with it and are left out; all others are there.
        """
        raise NotImplementedError

    async def age(self, subject: S, seconds: float) -> None:
        """Move the end of every lease that still runs back by so many seconds, around the plugin: of events, and of
        memories that somebody embeds."""
        raise NotImplementedError

    async def crash(self, subject: S) -> None:
        """Kill the backend at once (``kill -9``), as a power cut would; ``reopen`` must recover from it.

        Calls under way on ``subject.storage`` must end, with any error; so must ``close``, with or without one.
        """
        raise NotImplementedError

    def reopen(self, subject: S) -> AbstractAsyncContextManager[Storage]:
        """An open client on the subject's data after ``subject.storage`` was closed, or after ``crash``.

        It starts the backend again where that is this plugin's work.
        """
        return self.second(subject)

    @property
    def can_fault(self) -> bool:
        """Whether this target has its own ``fault``."""
        return _overridden(self, "fault")

    @property
    def can_fault_agent(self) -> bool:
        """Whether this target has its own ``fault_agent``."""
        return _overridden(self, "fault_agent")

    @property
    def can_layout(self) -> bool:
        """Whether this target has its own ``layout``."""
        return _overridden(self, "layout")

    @property
    def can_age(self) -> bool:
        """Whether this target has its own ``age``."""
        return _overridden(self, "age")

    @property
    def can_crash(self) -> bool:
        """Whether this target has its own ``crash``."""
        return _overridden(self, "crash")


def _overridden(target: object, method: str) -> bool:
    return getattr(type(target), method) is not getattr(StorageTarget, method)


class FailureKind(StrEnum):
    """The ways in which an embedder must fail."""

    UNKNOWN_MODEL = "unknown model"
    UNREACHABLE = "unreachable provider"
    FAILING = "failing provider"
    BAD_KEY = "bad key"


@dataclass(frozen=True, slots=True)
class FailingEmbedder:
    """An embedder that must fail, somewhere between ``make`` and its first vector, with a typed refusal.

    ``make`` gives it unopened. ``names`` is what the message must hold, such as the model's name. ``within``
    is its own time-out and some slack, in seconds.
    """

    kind: FailureKind
    make: Callable[[], Embedder]
    names: str = ""
    within: float = 10.0


class EmbedderTarget(Target, ABC):
    """How the suite gets at an embedder plugin.

    ``semantic`` is False for an embedder whose vectors know no meaning (a hash). ``remote`` says that vectors
    come from a provider over a network; then ``fail`` must give an unreachable one and one with a bad key.
    """

    semantic: bool = True
    remote: bool = False

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[Embedder]:
        """An open embedder of the plugin's usual configuration, closed afterwards."""

    @abstractmethod
    def fail(self) -> Sequence[FailingEmbedder]:
        """The embedders that must fail; at least one of kind UNKNOWN_MODEL, by a name that was never seen."""


class Refused(Exception):
    """An operation was refused: its ``code``, ``message`` and ``details`` as any surface gives them."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any]) -> None:
        self.code = code
        self.message = message
        self.details = details
        super().__init__(f"{code}: {message}")

    @classmethod
    def of(cls, error: MunimentError) -> Refused:
        """A refusal as the engine raises it."""
        return cls(error.code, error.message, error.details)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a transport sent for one call: the record as JSON-like data, and ``body``, the text that carried it.

    A body is the whole message: the line, or what an HTTP response has below its headers.
    """

    answer: dict[str, Any]
    body: str


class RemoteClient(Protocol):
    """A connection through a transport, of one principal. Its calls may overlap."""

    async def call(self, operation: str, payload: Mapping[str, Any]) -> Reply:
        """Send ``payload`` as it is, also where no operation takes it. Raises Refused, with what was sent."""
        ...


class Server(Protocol):
    """A transport over a network, in front of one engine, to which clients bring credentials of their own."""

    def connect(self, authorization: str | None) -> AbstractAsyncContextManager[RemoteClient]:
        """A client whose every request has this ``Authorization`` header, or none. It says no hello."""
        ...


class TransportTarget(Target, ABC):
    """How the suite gets at a transport plugin: ``connect``.

    ``surface`` is what the audit trail calls the transport, and ``policy`` what its callers may do with unknown
    projects; None is for what the caller's context says. ``network`` says whether it is served over one; then
    ``body_limit`` is how many bytes a request may have, and ``encoded``, ``send`` and ``server`` are the target's own.
    """

    surface: str | None = None
    policy: ProjectPolicy | None = None
    network: bool = True
    body_limit: int | None = None

    @abstractmethod
    def connect(self, engine: Engine, context: CallContext) -> AbstractAsyncContextManager[RemoteClient]:
        """A client that has said hello, of a transport in front of an open engine that serves ``context``'s principal.

        Leaving it ends both sides and leaves the engine open. Several are open at once.
        """

    def spelled(self, operation: str) -> str:
        """What clients call an operation, where a transport spells names another way; in messages as well."""
        return operation

    def encoded(self, operation: str, payload: Mapping[str, Any]) -> bytes:
        """The body of a request that calls an operation."""
        raise NotImplementedError

    async def send(
        self,
        engine: Engine,
        context: CallContext,
        operation: str,
        pieces: AsyncIterator[bytes],
        announced: int | None,
    ) -> Reply:
        """Make one request that calls ``operation``, with the body ``pieces`` and no more of them once it is answered.

        ``announced`` is the length that the request says beforehand, None where it says none. Raises Refused.
        """
        raise NotImplementedError

    def server(self, engine: Engine, callers: Callers) -> AbstractAsyncContextManager[Server]:
        """A transport that serves an open engine to ``callers``, as it would to other machines.

        Leaving it ends the transport and leaves the engine open.
        """
        raise NotImplementedError

    @property
    def can_ask(self) -> bool:
        """Whether this target has its own ``server``."""
        return type(self).server is not TransportTarget.server

    @property
    def can_send(self) -> bool:
        """Whether this target has its own ``encoded`` and ``send``, and says its limit."""
        own = all(getattr(type(self), name) is not getattr(TransportTarget, name) for name in ("encoded", "send"))
        return own and self.body_limit is not None
