"""The base of the mutants of core: rules of agent memory, of spaces and of names that are pure or the engine's, each as
a method.

No storage can break these, but a plugin's author must see that the suite judges them too, and a change of core must not
pass it unseen. While a subject is open its rules are those of the mutant.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any
from unittest.mock import patch

from pydantic import BaseModel

from muniment import access, acknowledgement, digests, sections
from muniment.agent_models import SectionName, Visibility
from muniment.conformance.reference_target import ReferenceSubject, ReferenceTarget
from muniment.digests import Digest
from muniment.engine import Engine, completeness, spaces
from muniment.models import CallContext, Principal
from muniment.operations import OPERATIONS, Operation
from muniment.ports import Embedder, Progress, Space, Storage, Vectors
from muniment.sections import SectionDraft

_CALL, _SERVES = Engine.call, Operation.serves
_check_writable, _visible, _merged = sections.check_writable, sections.visible, sections.merged
_sync_key, _cycle, _without_server_fields = sections.sync_key, sections.cycle, sections.without_server_fields
_payload, _shortened, _dm_takeaway = digests.payload, digests.shortened, digests.dm_takeaway
_seen_by_reading = acknowledgement.seen_by_reading
_register, _check_dimensions, _compare = spaces.register, spaces.check_dimensions, spaces.compare
_notice = completeness.notice
_could_be_an_id = access.could_be_an_id


class Core:
    """Rules of core as they are. A mutant overrides one."""

    async def call(self, engine: Engine, name: str, payload: Mapping[str, Any], context: CallContext) -> BaseModel:
        """``Engine.call``."""
        return await _CALL(engine, name, payload, context)

    def serves(self, operation: Operation, principal: Principal) -> bool:
        """``Operation.serves``."""
        return _SERVES(operation, principal)

    def check_writable(self, name: SectionName) -> None:
        """``sections.check_writable``."""
        _check_writable(name)

    def visible(self, name: SectionName, value: Any, visibility: Visibility, *, common_pod: bool) -> tuple[bool, Any]:
        """``sections.visible``."""
        return _visible(name, value, visibility, common_pod=common_pod)

    def merged(self, current: Any, sent: SectionDraft) -> SectionDraft:
        """``sections.merged``."""
        return _merged(current, sent)

    def sync_key(self, mode: str, runtime: str, drafts: Sequence[SectionDraft], now: Any) -> str:
        """``sections.sync_key``."""
        return _sync_key(mode, runtime, drafts, now)

    def cycle(self, text: str) -> tuple[str, int]:
        """``sections.cycle``."""
        return _cycle(text)

    def without_server_fields(self, sent: Any) -> Any:
        """``sections.without_server_fields``."""
        return _without_server_fields(sent)

    def payload(self, given: dict[str, Any], digest: Digest, *, cue: bool) -> dict[str, Any]:
        """``digests.payload``."""
        return _payload(given, digest, cue=cue)

    def shortened(self, text: str, limit: int) -> str:
        """``digests.shortened``."""
        return _shortened(text, limit)

    def dm_takeaway(self, messages: Sequence[str]) -> str:
        """``digests.dm_takeaway``."""
        return _dm_takeaway(messages)

    def seen_by_reading(self, last_seen: int, stored: Sequence[int], held: Collection[int]) -> int:
        """``acknowledgement.seen_by_reading``."""
        return _seen_by_reading(last_seen, stored, held)

    async def register(self, storage: Storage, embedder: Embedder) -> Space:
        """``spaces.register``."""
        return await _register(storage, embedder)

    def check_dimensions(self, space: Space, embedder: str) -> None:
        """``spaces.check_dimensions``."""
        _check_dimensions(space, embedder)

    def compare(self, space: Space, stored: Vectors, fresh: Vectors) -> None:
        """``spaces.compare``."""
        _compare(space, stored, fresh)

    def notice(self, progress: Progress, aside: int = 0) -> str | None:
        """``completeness.notice``."""
        return _notice(progress, aside)

    def could_be_an_id(self, name: str) -> bool:
        """``access.could_be_an_id``."""
        return _could_be_an_id(name)


_MODULES: Mapping[str, Any] = {
    "check_writable": sections,
    "visible": sections,
    "merged": sections,
    "sync_key": sections,
    "cycle": sections,
    "without_server_fields": sections,
    "payload": digests,
    "shortened": digests,
    "dm_takeaway": digests,
    "seen_by_reading": acknowledgement,
    "register": spaces,
    "check_dimensions": spaces,
    "compare": spaces,
    "notice": completeness,
    "could_be_an_id": access,
}
"""Where core looks the pure ones up."""


class CoreTarget(ReferenceTarget):
    """The reference storage under an engine with the rules of ``Core``, or of a subclass."""

    def __init__(self, rules: type[Core] = Core) -> None:
        super().__init__()
        self._rules = rules

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ReferenceSubject]:
        """A subject; the rules are replaced until it is left."""
        rules = self._rules()
        with ExitStack() as replaced:
            for owner, name, rule in _replacements(rules):
                replaced.enter_context(patch.object(owner, name, rule))
            async with super().open() as subject:
                yield subject


def _replacements(rules: Core) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """What is replaced: the owner, its attribute, and the function that is there instead.

    A class binds a function, and its instance is then the first argument. Calls of the operations that are anybody's go
    past the mutant.
    """

    async def call(engine: Engine, name: str, payload: Mapping[str, Any], context: CallContext) -> BaseModel:
        anybodys = name not in OPERATIONS or OPERATIONS[name].audience == "user"
        return await (_CALL if anybodys else rules.call)(engine, name, payload, context)

    def serves(operation: Operation, principal: Principal) -> bool:
        return (_SERVES if operation.audience == "user" else rules.serves)(operation, principal)

    yield Engine, "call", call
    yield Operation, "serves", serves
    for name, module in _MODULES.items():
        yield module, name, getattr(rules, name)
