"""The one path from an operation to storage, whatever surface it came through.

``Engine.call`` validates the input by the registry and hands it to the operation's method. Rules are in the pure
modules, atomicity is the storage's; what is left here is the order of the steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from muniment import limits, operations
from muniment.engine.agents import Agents
from muniment.engine.arrivals import Arrivals
from muniment.engine.background import Background
from muniment.engine.commit import Committed, Observer
from muniment.engine.embeddings import PATIENCE, Embeddings
from muniment.engine.events import Events
from muniment.engine.idempotency import Idempotency
from muniment.engine.lookout import Lookout
from muniment.engine.memories import Memories
from muniment.engine.projects import Projects
from muniment.engine.readiness import Looks, Readiness
from muniment.engine.reads import Reads
from muniment.engine.terms import StoredTerms
from muniment.engine.trails import Trails
from muniment.engine.vectors import VectorCache
from muniment.engine.watching import UNKNOWN, Part, Watch, unwatched, watched
from muniment.models import CallContext
from muniment.ports import Backlog, BacklogStorage, Embedder, Storage

EMBED_TIMEOUT = 10.0
"""Seconds that a write waits for its vectors before it is stored as pending."""

Handler = Callable[[CallContext, Any], Awaitable[BaseModel]]

CountBacklog = Callable[[], Awaitable[Backlog | None]]
Exposition = Callable[[CountBacklog], Awaitable[bytes]]
"""Gives what was measured, as text; it is told how to count what waits in the storage."""


class Engine:
    """Runs operations on one storage and one embedder, both of which it opens and closes.

    ``embed_timeout`` and ``patience`` are seconds: what a write waits for its vectors, and what a search waits for its
    query's, or a write for a model that is still loading. ``embedder`` None is a valid deployment: search then answers
    from words and tags. ``background`` False leaves loading the embedder to the first use, and what is to be made good
    to ``terms.heal`` and ``embeddings.heal``.
    ``memory_cue`` puts one line about new exchanges before the content of a delivered event. ``watch`` sees every
    operation, and what it does to the storage and the embedder; ``exposition`` is for ``metrics``. ``cache`` keeps
    vectors of passages that were embedded lately, in memory; by default 32 MB of them.
    """

    def __init__(
        self,
        storage: Storage,
        embedder: Embedder | None,
        *,
        observers: Sequence[Observer] = (),
        embed_timeout: float = EMBED_TIMEOUT,
        patience: float = PATIENCE,
        background: bool = True,
        memory_cue: bool = False,
        watch: Watch = unwatched,
        exposition: Exposition | None = None,
        cache: VectorCache | None = None,
    ) -> None:
        self.storage = storage
        self._watch = watch
        self._exposition = exposition
        storage = watched(storage, Part.STORAGE, watch)
        embedder = watched(embedder, Part.EMBEDDER, watch) if embedder is not None else None
        self.embeddings = Embeddings(
            storage, embedder, timeout=embed_timeout, patience=patience, looked_after=background, cache=cache
        )
        self.terms = StoredTerms(storage)
        self._background = Background(self.terms, self.embeddings) if background else None
        committed = Committed(observers)
        projects = Projects(storage, committed)
        idempotency = Idempotency(storage)
        memories = Memories(storage, projects, self.embeddings, committed, idempotency)
        agents = Agents(storage, idempotency)
        self.arrivals = Arrivals()
        self.lookout = Lookout(storage, self.arrivals)
        events = Events(storage, idempotency, self.arrivals, self.lookout, cue=memory_cue)
        reads = Reads(storage, projects, self.embeddings, watch=watch)
        trails = Trails(storage, projects)
        self._looks = Looks(self.storage, self.embeddings)
        self._handlers: Mapping[str, Handler] = {
            "project.identify": projects.identify,
            "project.list": projects.list,
            "project.share": projects.share,
            "project.unshare": projects.unshare,
            "project.history": trails.of_project,
            "memory.write": memories.write,
            "memory.get": reads.get,
            "memory.list": reads.list,
            "memory.search": reads.search,
            "memory.update": memories.update,
            "memory.patch": memories.patch,
            "memory.delete": memories.delete,
            "memory.restore": memories.restore,
            "memory.history": reads.history,
            "agent.register": agents.register,
            "section.read": agents.read,
            "section.read_shared": agents.read_shared,
            "section.save": agents.save,
            "section.sync": agents.sync,
            "section.log_cycle": agents.log_cycle,
            "exchange.dm_concluded": agents.dm_concluded,
            "exchange.loop_tripped": agents.loop_tripped,
            "exchange.task_completed": agents.task_completed,
            "event.enqueue": events.enqueue,
            "event.claim": events.claim,
            "event.extend": events.extend,
            "event.ack": events.ack,
            "event.dead": events.dead,
            "event.requeue": events.requeue,
            "token.history": trails.of_tokens,
        }

    @property
    def operations(self) -> frozenset[str]:
        """The names of the operations that this engine runs."""
        return frozenset(self._handlers)

    async def open(self) -> None:
        """Open the storage, then the embedder. Raises StorageUnavailable, ConfigurationError."""
        await self.storage.open()
        try:
            await self.embeddings.open()
        except BaseException:
            await self.storage.close()
            raise
        if self._background is not None:
            self._background.start()

    async def close(self) -> None:
        """Close both; what was begun by then is finished or rolled back whole."""
        await self._looks.stop()
        await self.lookout.stop()
        if self._background is not None:
            await self._background.stop()
        try:
            await self.embeddings.close()
        finally:
            await self.storage.close()

    async def __aenter__(self) -> Engine:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def call(self, name: str, payload: Mapping[str, Any], context: CallContext) -> BaseModel:
        """Run one operation; its output model. Raises the refusals of ``muniment.errors``."""
        with self._watch(Part.OPERATION, name if name in self._handlers else UNKNOWN, context):
            operation = operations.find(name)
            if not operation.serves(context.principal):
                raise operation.not_served(context.principal)
            sent = operation.parse(payload)
            return await self._handlers[name](context, sent)

    async def readiness(self) -> Readiness:
        """Whether calls can be served, as of a moment ago at most."""
        return await self._looks.readiness()

    async def backlog(self) -> Backlog | None:
        """What waits; None where the storage's plugin is older than the question. Raises StorageUnavailable."""
        counts = _counting(self.storage)
        if counts is None:
            return None
        return await counts.backlog(self.embeddings.active_space, attempts_max=limits.ATTEMPTS_MAX)

    async def metrics(self) -> bytes | None:
        """What was measured, in the text format of Prometheus; None where nothing is."""
        return await self._exposition(self.backlog) if self._exposition else None


def _counting(storage: object) -> BacklogStorage | None:
    return storage if isinstance(storage, BacklogStorage) else None
