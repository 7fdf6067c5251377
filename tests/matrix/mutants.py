"""Products with one rule of access broken, and the callers by whom the matrix must see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from muniment import access, sections
from muniment.authentication import claims
from muniment.engine import Engine, trails
from muniment.errors import AccessDenied, MunimentError, NotFound, Unauthenticated
from muniment.models import Access, Agent, AuditRecord, Principal
from muniment.operations import Operation
from muniment.ports import Callers
from muniment.reference import ReferenceStorage
from muniment_transport_http.served import Served

Break = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """What is broken, the case that shows it, and the callers who get something else."""

    breaks: Break
    case: str
    caught: Set[str]
    kind: str = "API tokens"


def _reading_is_writing(patched: pytest.MonkeyPatch) -> None:
    level = access.level

    def mutated(*facts: Any) -> Access:
        return Access.WRITE if level(*facts) is Access.READ else level(*facts)

    patched.setattr(access, "level", mutated)


def _served_as(patched: pytest.MonkeyPatch, **changes: Any) -> None:
    serves = Operation.serves

    def mutated(self: Operation, principal: Principal) -> bool:
        return serves(self, principal.model_copy(update=changes))

    patched.setattr(Operation, "serves", mutated)


def _unreadable_is_denied(patched: pytest.MonkeyPatch) -> None:
    require = access.require

    def mutated(*facts: Any) -> None:
        try:
            require(*facts)
        except NotFound:
            raise AccessDenied from None

    patched.setattr(access, "require", mutated)


def _existence_is_told(patched: pytest.MonkeyPatch) -> None:
    require = access.require

    def mutated(principal: Any, facts: Any, need: Any, thing: str) -> None:
        try:
            require(principal, facts, need, thing)
        except NotFound as refusal:
            raise refusal if facts is None else NotFound(f"{thing} is somebody else's.") from None

    patched.setattr(access, "require", mutated)
    patched.setattr(ReferenceStorage, "may_load", _always)


def _always(*_: Any) -> bool:
    return True


def _refusals_leave_something(patched: pytest.MonkeyPatch) -> None:
    call = Engine.call

    async def mutated(self: Engine, *sent: Any) -> Any:
        try:
            return await call(self, *sent)
        except MunimentError:
            await self.storage.register_agent(Agent(name="trace", instance="1"), frozenset())
            raise

    patched.setattr(Engine, "call", mutated)


def _nobody_is_local(patched: pytest.MonkeyPatch) -> None:
    proved = Callers.proved

    async def mutated(self: Callers, authorization: str | None) -> Any:
        try:
            return await proved(self, authorization)
        except Unauthenticated:
            return self.local

    patched.setattr(Callers, "proved", mutated)


def _a_header_is_believed(patched: pytest.MonkeyPatch) -> None:
    caller = Served.caller

    async def mutated(self: Served, scope: Any) -> Any:
        context = await caller(self, scope)
        (user,) = (value.decode() for name, value in scope["headers"] if name == b"x-forwarded-user")
        return context.model_copy(update={"principal": context.principal.model_copy(update={"user": user})})

    patched.setattr(Served, "caller", mutated)


def _issuers_are_one(patched: pytest.MonkeyPatch) -> None:
    principal = claims.principal

    def mutated(_name: str, issuer: Any, said: Any) -> Principal:
        return principal("corp", issuer, said)

    patched.setattr(claims, "principal", mutated)


def _events_are_anybodys(patched: pytest.MonkeyPatch) -> None:
    def mutated(self: ReferenceStorage, _agent: Agent, event_id: str) -> Any:
        return next((rows[event_id] for rows in self.agents.events.values() if event_id in rows), None)

    patched.setattr(ReferenceStorage, "event", mutated)


def _sections_are_open(patched: pytest.MonkeyPatch) -> None:
    def mutated(_name: Any, value: Any, *_: Any, **__: Any) -> tuple[bool, Any]:
        return True, value

    patched.setattr(sections, "visible", mutated)


def _grants_stay(patched: pytest.MonkeyPatch) -> None:
    shared = ReferenceStorage.shared

    def mutated(self: ReferenceStorage, row: Any, change: Any) -> Any:
        return row if change.share is None else shared(self, row, change)

    patched.setattr(ReferenceStorage, "shared", mutated)


def _groups_are_told(patched: pytest.MonkeyPatch) -> None:
    def mutated(entry: AuditRecord) -> AuditRecord:
        return entry

    patched.setattr(trails, "_without_details", mutated)


def _keys_count_before_ids(patched: pytest.MonkeyPatch) -> None:
    choose = access.choose_project

    def mutated(principal: Principal, found: Sequence[Any], name: str) -> Any:
        return choose(principal, [one for one in found if one.key == name] or found, name)

    patched.setattr(access, "choose_project", mutated)


MEMORY = "on a memory in the project"
MEMBERS = {"rw", "ro", "ro and rw"}
OTHER_AGENTS = {"another agent", "agent of the same pod"}
OUTSIDERS = {"stranger", "revoked", "other tenant", "agent", "platform"} | OTHER_AGENTS
RESTRICTED_OUTSIDERS = {"read-only stranger", "read-only agent", "read-only platform"}
RESTRICTED = {"read-only owner", "read-only rw"} | RESTRICTED_OUTSIDERS

MUTANTS = {
    "reading is writing": Mutant(_reading_is_writing, f"memory.patch {MEMORY}", {"ro"}),
    "credentials that may only read write": Mutant(
        partial(_served_as, read_only=False), "memory.write on the caller's own", RESTRICTED
    ),
    "everybody is the platform": Mutant(
        partial(_served_as, platform=True),
        "event.enqueue on an agent's sections and events",
        {"owner", "agent of the owner"} | MEMBERS | OUTSIDERS - {"platform"},
    ),
    "what may not be read is denied": Mutant(
        _unreadable_is_denied, f"memory.get {MEMORY}", OUTSIDERS | RESTRICTED_OUTSIDERS
    ),
    "a refusal tells what exists": Mutant(_existence_is_told, f"memory.delete {MEMORY}", OUTSIDERS),
    "a refusal leaves something": Mutant(
        _refusals_leave_something, f"memory.delete {MEMORY}", {"ro"} | OUTSIDERS | RESTRICTED
    ),
    "who proves nothing is the local caller": Mutant(
        _nobody_is_local, f"memory.get {MEMORY}", {"anonymous", "revoked token", "expired token", "unknown token"}
    ),
    "a header is believed": Mutant(
        _a_header_is_believed,
        "memory.get on a memory of the owner's own scope",
        MEMBERS | OUTSIDERS | RESTRICTED - {"read-only owner"},
    ),
    "all issuers are one": Mutant(_issuers_are_one, f"memory.get {MEMORY}", {"other tenant"}, kind="JWTs"),
    "a grant stays for ever": Mutant(_grants_stay, f"memory.get {MEMORY}", {"revoked"}),
    "everybody is told with whom a project is shared": Mutant(
        _groups_are_told, "project.history on the project, by id", MEMBERS | {"read-only rw"}
    ),
    "a key counts before an id": Mutant(
        _keys_count_before_ids, "memory.list on the project, by id", MEMBERS | {"read-only rw"}
    ),
    "events are anybody's": Mutant(_events_are_anybodys, "event.ack on an agent's sections and events", OTHER_AGENTS),
    "private sections are shown": Mutant(_sections_are_open, "section.read_shared on Ada's sections", OTHER_AGENTS),
}
