"""All invariants, in the order of the documentation, and the selection of some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from muniment.conformance.invariant import Invariant, seat_of
from muniment.conformance.invariants import (
    access,
    acknowledgement,
    admission,
    atomicity,
    backlog,
    bulk,
    convergence,
    created,
    crowd,
    digests,
    edits,
    embedders,
    exchanges,
    failures,
    healing,
    identity,
    inputs,
    leases,
    lifecycle,
    names,
    orders,
    patches,
    ranks,
    reads,
    receipts,
    restricted,
    scope,
    scope_trails,
    sections,
    space_registry,
    standby,
    strangers,
    survival,
    swaps,
    syncs,
    terms,
    tokens,
    trail,
    trails,
    transports,
    vectors,
    versions,
    withheld,
    words,
)
from muniment.conformance.target import Target
from muniment.plugins import contract_problem

_MODULES = (
    versions,
    patches,
    lifecycle,
    receipts,
    atomicity,
    survival,
    trail,
    reads,
    inputs,
    access,
    identity,
    restricted,
    names,
    bulk,
    crowd,
    scope,
    created,
    trails,
    scope_trails,
    vectors,
    edits,
    swaps,
    healing,
    space_registry,
    words,
    terms,
    strangers,
    orders,
    ranks,
    sections,
    syncs,
    exchanges,
    digests,
    acknowledgement,
    leases,
    convergence,
    tokens,
    backlog,
    standby,
    embedders,
    failures,
    transports,
    admission,
    withheld,
)
FAMILIES = ("MUT", "READ", "ACC", "SCOPE", "VEC", "LEX", "RANK", "SEC", "DIG", "ACK", "AUTH", "OPS", "EMB", "TRA")

INVARIANTS: tuple[Invariant, ...] = tuple(
    sorted(
        (invariant for module in _MODULES for invariant in module.RULES),
        key=lambda one: (FAMILIES.index(one.family), one.id),
    )
)
BY_ID = {invariant.id: invariant for invariant in INVARIANTS}


class NotJudged(Exception):
    """A plugin cannot be judged by what was asked for, or as its target says."""


class UnknownInvariant(NotJudged):
    """An id, or a family, that none of the invariants has that judge the plugin."""

    def __init__(self, name: object, where: str, judged: Sequence[Invariant]) -> None:
        families = ", ".join(dict.fromkeys(one.family for one in judged))
        super().__init__(
            f"{where}: no invariant {name!r} judges it; write an id such as {judged[0].id}, or a family of {families}."
        )


class UnlinkedFailure(NotJudged):
    """A known failure without a link to where it is being worked on."""

    def __init__(self, known: str, target: Target) -> None:
        super().__init__(
            f"known_failures of {target.name}: {known} has no link; give the address at which it is being worked on."
        )


def judging(target: Target) -> tuple[Invariant, ...]:
    """The invariants of a target's seat and contract. Raises NotJudged for a contract that none of them is of, and for
    known failures that are no mapping, UnknownInvariant for an id among these, and UnlinkedFailure for one without a
    link."""
    _refuse_contract(target)
    seat = seat_of(target)
    judged = tuple(one for one in INVARIANTS if seat in one.seats and target.is_of(one.since))
    known_failures = cast("object", target.known_failures)
    if not isinstance(known_failures, Mapping):
        raise NotJudged(
            f"known_failures of {target.name}: this is a {type(known_failures).__name__}; map each id to a link."
        )
    for known, link in cast("Mapping[object, object]", known_failures).items():
        if known not in BY_ID:
            raise UnknownInvariant(known, f"known_failures of {target.name}", judged)
        if not isinstance(link, str) or not link.strip():
            raise UnlinkedFailure(str(known), target)
    return judged


def _refuse_contract(target: Target) -> None:
    """Raises NotJudged where a target's contract is one that no plugin may have."""
    if problem := contract_problem(target.contract):
        cause, remedy = problem
        raise NotJudged(f"contract of {target.name}: {cause}; {remedy}.")


def select(target: Target, only: Sequence[str] | None) -> tuple[Invariant, ...]:
    """Those that judge a target, narrowed to ids and families. Raises UnknownInvariant, also for another
    seat's."""
    judged = judging(target)
    if only is None:
        return judged
    for name in only:
        if not any(name in (one.id, one.family) for one in judged):
            raise UnknownInvariant(name, f"only (for {target.name})", judged)
    return tuple(one for one in judged if one.id in only or one.family in only)
