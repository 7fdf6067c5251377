"""The memory operations that change something: each is load, authorise, transform, check, embed, commit, observe."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TypeVar
from uuid import uuid4

from muniment import access, limits, mutations
from muniment.engine.changes import UNDATED, Change, Loaded
from muniment.engine.commit import Committed, draft, editor
from muniment.engine.embeddings import Embeddings, none_stored
from muniment.engine.idempotency import Idempotency
from muniment.engine.projects import Projects, check_scope
from muniment.engine.terms import analyse_beside
from muniment.errors import InvalidInput, MunimentError, NotFound, VersionConflict
from muniment.models import Access, CallContext, EmbeddingState, Receipt
from muniment.operations.memories import MemoryDelete, MemoryPatch, MemoryRestore, MemoryUpdate, MemoryWrite
from muniment.ports import (
    Create,
    Index,
    MemoryFacts,
    Mutation,
    NewProject,
    Placement,
    ProjectTaken,
    ReceiptClaim,
    ReceiptTaken,
    Remove,
    Restore,
    Revise,
    Storage,
)
from muniment.ports.refusals import NoSpace

_RETRY_SLEEP = 0.005
"""Seconds; the longest first pause before an unversioned patch is tried again, doubled each time."""


S = TypeVar("S")


def _on_what_is_there(
    change: Callable[[Memories, CallContext, S], Awaitable[Receipt]],
) -> Callable[[Memories, CallContext, S], Awaitable[Receipt]]:
    """The change, made again where meanwhile the embedder's space was pruned, or somebody registered the project that
    the change was to register."""

    @wraps(change)
    async def changed(memories: Memories, context: CallContext, sent: S) -> Receipt:
        for _ in (NoSpace, ProjectTaken):
            try:
                return await change(memories, context, sent)
            except NoSpace:
                memories.embeddings.forget()
            except ProjectTaken:
                pass  # it is found now
        return await change(memories, context, sent)

    return changed


class Memories:
    """Write, update, patch, delete and restore."""

    def __init__(
        self,
        storage: Storage,
        projects: Projects,
        embeddings: Embeddings,
        committed: Committed,
        idempotency: Idempotency,
    ) -> None:
        self._storage = storage
        self._projects = projects
        self.embeddings = embeddings
        self._committed = committed
        self._idempotency = idempotency

    @_on_what_is_there
    async def write(self, context: CallContext, sent: MemoryWrite) -> Receipt:
        """Store a new memory."""
        if (first := await self._replay(context, "memory.write", sent)) is not None:
            return first
        project = sent.project or (None if sent.scope == "user" else context.default_project)
        placement, new = await self._projects.place(context, sent.scope, project)
        mutations.check_content(sent.content)
        index, state = await self.embeddings.index(sent.content, none_stored, None)
        memory_id = str(uuid4())
        receipt = Receipt(
            id=memory_id,
            version=1,
            updated_at=UNDATED,
            action="memory.write",
            embedding=state,
            content_length=len(sent.content),
            project_id=placement.project_id,
            project_created=new is not None,
        )
        create = Create(
            memory_id=memory_id,
            editor=editor(context),
            placement=placement,
            content=sent.content,
            tags=_unique(sent.tags),
            index=index,
            audit=draft(
                context,
                action="memory.write",
                memory_id=memory_id,
                project_id=placement.project_id,
                version=1,
                changed=("content", "tags") if sent.tags else ("content",),
                scope_key=placement.scope_key,
            ),
            claim=self._claim(context, "memory.write", sent, receipt),
            registers=new,
        )
        try:
            return await self._commit(create, receipt)
        except ReceiptTaken:
            return await self._first_receipt(context, "memory.write", sent)

    @_on_what_is_there
    async def update(self, context: CallContext, sent: MemoryUpdate) -> Receipt:
        """Replace content or tags, or move a memory; what is not sent stays."""
        check_scope(sent.scope, sent.project)
        if sent.content is None and sent.tags is None and sent.scope is None and sent.project is None:
            raise InvalidInput("input", "nothing to change; send content, tags, scope or project")
        loaded, terms = await analyse_beside(sent.content, self._load(context, sent.id, sent.version))
        placement, new = await self._destination(context, sent, loaded.facts)
        if sent.content is not None:
            mutations.check_content(sent.content)
        change = Change(
            content=sent.content,
            tags=None if sent.tags is None else _unique(sent.tags),
            placement=placement,
            registers=new,
            terms=terms,
        )
        return await self._revise(context, "memory.update", loaded, change)

    @_on_what_is_there
    async def patch(self, context: CallContext, sent: MemoryPatch) -> Receipt:
        """Replace one fragment; without a version, tried again on the newer text while others edit it."""
        if (first := await self._replay(context, "memory.patch", sent)) is not None:
            return first
        try:
            return await self._patch_retried(context, sent)
        except (ReceiptTaken, MunimentError):
            # The same request may have been applied while this one was under way, and is then what this one met.
            if (first := await self._replay(context, "memory.patch", sent)) is None:
                raise
            return first

    async def delete(self, context: CallContext, sent: MemoryDelete) -> Receipt:
        """Hide a memory from every read and search."""
        loaded = await self._load(context, sent.id, sent.version)
        remove = Remove(
            memory_id=sent.id,
            editor=editor(context),
            expected_version=loaded.version,
            audit=loaded.audit(context, "memory.delete", ("deleted",)),
        )
        return await self._commit(remove, loaded.receipt("memory.delete"))

    @_on_what_is_there
    async def restore(self, context: CallContext, sent: MemoryRestore) -> Receipt:
        """Bring a deleted memory back, its search entries rebuilt."""
        loaded = await self._load(context, sent.id, sent.version, deleted=True)
        facts = loaded.facts
        index, state = await self.embeddings.index(facts.memory.content, none_stored, None)
        restore = Restore(
            memory_id=sent.id,
            editor=editor(context),
            expected_version=loaded.version,
            index=index,
            audit=loaded.audit(context, "memory.restore", ("deleted",)),
        )
        return await self._commit(restore, loaded.receipt("memory.restore", embedding=state))

    async def _patch_retried(self, context: CallContext, sent: MemoryPatch) -> Receipt:
        attempts = limits.PATCH_ATTEMPTS if sent.version is None else 1
        for attempt in range(attempts):
            try:
                return await self._patch_once(context, sent)
            except VersionConflict:
                if attempt + 1 == attempts:
                    raise
                await asyncio.sleep(random.uniform(0, _RETRY_SLEEP * 2**attempt))
        raise AssertionError("a patch is tried at least once")

    async def _patch_once(self, context: CallContext, sent: MemoryPatch) -> Receipt:
        loaded = await self._load(context, sent.id, sent.version)
        patched = mutations.patch(loaded.facts.memory.content, sent.old_string, sent.new_string)
        change = Change(content=patched.content, effect=patched.effect)
        return await self._revise(context, "memory.patch", loaded, change, sent)

    async def _revise(
        self,
        context: CallContext,
        action: str,
        loaded: Loaded,
        change: Change,
        keyed: MemoryPatch | None = None,
    ) -> Receipt:
        facts = loaded.facts
        index: Index | None = None
        state: EmbeddingState | None = None
        if change.content is not None:
            stored = partial(self._stored_passages, context, loaded)
            index, state = await self.embeddings.index(change.content, stored, change.terms)
        receipt = loaded.receipt(action, embedding=state, change=change)
        revise = Revise(
            memory_id=facts.memory.id,
            editor=editor(context),
            expected_version=loaded.version,
            content=change.content,
            tags=change.tags,
            placement=change.placement,
            index=index,
            audit=loaded.audit(context, action, change.fields(facts), change),
            claim=None if keyed is None else self._claim(context, action, keyed, receipt),
            registers=change.registers,
        )
        return await self._commit(revise, receipt)

    async def _load(
        self, context: CallContext, memory_id: str, version: int | None, *, deleted: bool = False
    ) -> Loaded:
        """Load, authorise, and fix the version. Raises NotFound, AccessDenied, VersionConflict."""
        space = self.embeddings.active_space
        facts = await self._storage.load(access.audience(context.principal), memory_id, space=space)
        access.require(context.principal, facts, Access.WRITE, f"memory {memory_id}")
        assert facts is not None
        if facts.deleted is not deleted:
            state = "deleted; restore it first" if facts.deleted else "not deleted; there is nothing to restore"
            raise NotFound(f"Memory {memory_id} is {state}.")
        return Loaded(facts, mutations.check_version(version, facts.memory.version), space)

    async def _stored_passages(self, context: CallContext, loaded: Loaded, space: str) -> frozenset[str]:
        """Those that were loaded; loaded now where the space was not known by then, as in a first edit after a start.

        Should the memory be another by now, the commit is refused by its version.
        """
        if space == loaded.space:
            return loaded.facts.passages
        memory_id = loaded.facts.memory.id
        facts = await self._storage.load(access.audience(context.principal), memory_id, space=space)
        return frozenset() if facts is None else facts.passages

    async def _destination(
        self, context: CallContext, sent: MemoryUpdate, facts: MemoryFacts
    ) -> tuple[Placement | None, NewProject | None]:
        """Where an update moves a memory, None where it stays; and the project that it registers for that."""
        if sent.scope is None and sent.project is None:
            return None, None
        placement, new = await self._projects.place(context, sent.scope, sent.project)
        return None if placement.scope_key == facts.scope_key else placement, new

    async def _commit(self, mutation: Mutation, receipt: Receipt) -> Receipt:
        applied = await self._storage.apply(mutation)
        receipt = receipt.model_copy(update={"version": applied.version, "updated_at": applied.updated_at})
        if mutation.registers is not None:
            self._projects.registered(mutation.registers, applied.updated_at)
        self._committed(receipt, mutation.audit)
        return receipt

    async def _replay(self, context: CallContext, operation: str, sent: MemoryWrite | MemoryPatch) -> Receipt | None:
        """The first receipt of this request, if it was applied before, where the caller may still write there.

        Raises IdempotencyConflict, NotFound, AccessDenied.
        """
        stored = await self._idempotency.find(context, operation, sent)
        if stored is None:
            return None
        facts = await self._storage.load(access.audience(context.principal), stored.subject)
        access.require(context.principal, facts, Access.WRITE, f"memory {stored.subject}")
        return Receipt.model_validate({**stored.receipt, "updated_at": stored.updated_at})

    def _claim(
        self, context: CallContext, operation: str, sent: MemoryWrite | MemoryPatch, receipt: Receipt
    ) -> ReceiptClaim | None:
        body = receipt.model_dump(mode="json", exclude={"updated_at"}, exclude_defaults=True)
        return self._idempotency.claim(context, operation, sent, receipt.id, body)

    async def _first_receipt(self, context: CallContext, operation: str, sent: MemoryWrite | MemoryPatch) -> Receipt:
        """The receipt of the request that took the key while this one was under way."""
        first = await self._replay(context, operation, sent)
        if first is None:
            raise AssertionError("the storage said that the idempotency key is taken, and has no receipt for it")
        return first


def _unique(tags: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tags))
