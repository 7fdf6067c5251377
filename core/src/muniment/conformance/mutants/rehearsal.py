"""Judges all mutants by every invariant: in several processes, and nothing that is pure computed twice.

``killed`` runs only the checks that a mutant declares to fail, which takes seconds; ``judged`` runs all, since a mutant
must fail nothing else either. Each check is run once on what the mutants are made of, and again only on those that do
something else there, see ``reach``. That is itself judged: a mutant that was not told from its base must not fail.
The seeded texts of the checks are the same on each mutant, so their passages, terms and vectors are remembered. Checks
whose time goes by the size of what they store are run on less of it; ``full`` runs them as they are, and on all.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import sys
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from random import Random
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

from muniment import lexical, passages
from muniment.conformance import bench, reference_transport, walk
from muniment.conformance import orders as seeded_orders
from muniment.conformance.invariant import Outcome
from muniment.conformance.invariants import crowd, edits, names, orders, transports
from muniment.conformance.isolation import trusted
from muniment.conformance.mutants import MUTANTS
from muniment.conformance.mutants import transports as mutant_transports
from muniment.conformance.mutants.core import Core
from muniment.conformance.mutants.mutant import SEED, Mutant, Plugin, target_of
from muniment.conformance.mutants.provider import ProvidedEmbedder
from muniment.conformance.mutants.reach import Differences, noting
from muniment.conformance.reference_transport import ReferenceTransport, ReferenceTransportTarget
from muniment.conformance.registry import BY_ID, judging
from muniment.conformance.report import Result
from muniment.conformance.runner import run_one
from muniment.conformance.target import Target
from muniment.engine import cutting, spaces, terms
from muniment.limits import BODY_MAX, SECTION_BYTES_MAX
from muniment.ports import Space, Vector
from muniment.reference import HashEmbedder, ReferenceStorage

BASES: tuple[Plugin, ...] = (ReferenceStorage, ProvidedEmbedder, ReferenceTransport, Core)
"""What mutants are subclasses of."""
_Sizes: TypeAlias = tuple[tuple[ModuleType, str, float], ...]
_PART = 3
"""The part of the largest request that mutants are judged with, whose bytes say nothing about them; other checks send
what would not fit into less."""
_SIZES: _Sizes = (
    (crowd, "CROWD", 600),
    (edits, "EDITS", 60),
    (walk, "SEQUENCES", 60),
    (walk, "SHRINKINGS", 0),
    (walk, "SECONDS", 60),
    (transports, "SOON", 1),
    (bench, "LOADING_PATIENCE", 0.05),
    (transports, "SECTION_BYTES_MAX", SECTION_BYTES_MAX // _PART),
    (transports, "BUFFERS", transports.BUFFERS // _PART),
    (reference_transport, "BODY_MAX", BODY_MAX // _PART),
    (mutant_transports, "BODY_MAX", BODY_MAX // _PART),
)
_LESS: _Sizes = (
    *_SIZES,
    (edits, "EDITS", 20),
    (walk, "SEQUENCES", 12),
    (names, "STEP", 3),
)
"""Where a check is to find nothing, which takes longest; that it finds what it is for is run as above."""
_SAMPLE = 8
"""Random queries of RANK-01: of more, some would meet by chance what has invariants of its own."""

_CHUNK = 16
"""Runs that a process takes at once, where none is dear."""
_FEW = 2
"""Where some are."""

Ended = Mapping[str, Outcome]
"""How each invariant of a seat ended, by id."""


class Judged(NamedTuple):
    """How every invariant ended on each base, by its class's name, and on each mutant, by its name.

    ``mistaken`` are mutants that fail an invariant without having been told from their base by its check.
    """

    bases: Mapping[str, Ended]
    mutants: Mapping[str, Ended]
    mistaken: frozenset[tuple[str, str]]


class _Rehearsed(NamedTuple):
    """How a check ended on a base and after how many seconds, and the names of the mutants on which it must be run."""

    base: int
    invariant: str
    outcome: Outcome
    seconds: float
    different: frozenset[str]


def killed(*, full: bool = False) -> Mapping[str, Ended]:
    """How the invariants that each mutant declares to fail end on it, by the mutant's name."""
    runs = [(mutant.name, invariant) for mutant in MUTANTS for invariant in sorted(mutant.fails)]
    with _workers(() if full else _SIZES) as workers:
        outcomes = list(workers.map(_run, runs, chunksize=_CHUNK))
    found: dict[str, dict[str, Outcome]] = {mutant.name: {} for mutant in MUTANTS}
    for (name, invariant), outcome in zip(runs, outcomes, strict=True):
        found[name][invariant] = outcome
    return found


def judged(killed: Mapping[str, Ended], *, full: bool = False) -> Judged:
    """How every invariant ends on all that it judges; what ``killed`` has found is not run again."""
    with _workers(() if full else _LESS) as workers:
        checks = [(base, one.id) for base, plugin in enumerate(BASES) for one in judging(target_of(plugin))]
        rehearsed = sorted(workers.map(_rehearse, checks), key=lambda one: -one.seconds)
        runs = [
            (mutant.name, one.invariant)
            for one in rehearsed
            for mutant in MUTANTS
            if base_of(mutant) is BASES[one.base] and _must_run(mutant.name, one, killed[mutant.name], full=full)
        ]
        outcomes = dict(zip(runs, workers.map(_run, runs, chunksize=_FEW), strict=True))
    told = {(name, one.invariant) for one in rehearsed for name in one.different}
    bases: dict[str, dict[str, Outcome]] = {plugin.__name__: {} for plugin in BASES}
    for one in rehearsed:
        bases[BASES[one.base].__name__][one.invariant] = one.outcome
    mutants: dict[str, Ended] = {}
    for mutant in MUTANTS:
        as_base = bases[base_of(mutant).__name__]
        found = {invariant: outcomes.get((mutant.name, invariant), outcome) for invariant, outcome in as_base.items()}
        mutants[mutant.name] = {**found, **killed[mutant.name]}
    mistaken = (run for run, outcome in outcomes.items() if run not in told and not outcome.kept)
    return Judged(bases, mutants, frozenset(mistaken))


def _must_run(mutant: str, check: _Rehearsed, killed: Ended, *, full: bool) -> bool:
    """Whether how a check ends on a mutant is known neither from ``killed`` nor from the base.

    What fails without having been told from its base is run again, on the data of the rehearsal, to see who is right.
    """
    told = mutant in check.different
    return not told if check.invariant in killed else told or full


def base_of(mutant: Mutant) -> Plugin:
    """What a mutant is a subclass of."""
    return next(base for base in BASES if issubclass(mutant.plugin, base))


def _workers(sizes: _Sizes) -> ProcessPoolExecutor:
    serves = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if serves else "spawn")
    if serves:
        # What is imported once need not be by each process.
        context.set_forkserver_preload([__name__])
    # A module is named, since it cannot be handed to another process.
    named = tuple((module.__name__, name, size) for module, name, size in sizes)
    return ProcessPoolExecutor(mp_context=context, initializer=partial(_prepare, named))


def _prepare(sizes: Sequence[tuple[str, str, float]]) -> None:
    """Make a process ready, for good."""
    logging.disable(logging.CRITICAL)
    _for_good.enter_context(computed_once())
    for module, name, size in sizes:
        setattr(sys.modules[module], name, size)
    ReferenceTransportTarget.body_limit = reference_transport.BODY_MAX  # pyright: ignore[reportPrivateImportUsage]
    orders.QUERIES = _SAMPLE


def _rehearse(check: tuple[int, str]) -> _Rehearsed:
    number, invariant = check
    base = BASES[number]
    differences = Differences({mutant.name: mutant.plugin for mutant in MUTANTS if base_of(mutant) is base})
    with differences.watching():
        result = _one(target_of(noting(base, differences)), invariant)
    return _Rehearsed(number, invariant, result.outcome, result.seconds, frozenset(differences.found))


def _run(case: tuple[str, str]) -> Outcome:
    name, invariant = case
    mutant = next(one for one in MUTANTS if one.name == name)
    return _one(mutant.target, invariant).outcome


def _one(target: Target, invariant: str) -> Result:
    return asyncio.run(run_one(target, BY_ID[invariant], seed=SEED, runs=trusted))


_for_good = ExitStack()
"""Entered as long as the process lives."""


@contextmanager
def computed_once() -> Generator[None]:
    """While entered, passages, terms and vectors of a text that was seen before come from memory, and so do the orders
    that RANK-01 expects."""
    group, tokens, vector = passages.group, HashEmbedder.tokens, HashEmbedder.vector
    orders_of = seeded_orders.expected

    @cache
    def grouped(units: tuple[str, ...], counts: tuple[int, ...], limit: int) -> list[str]:
        return group(units, counts, limit)

    def in_tuples(units: Sequence[str], counts: Sequence[int], limit: int) -> list[str]:
        return grouped(tuple(units), tuple(counts), limit)

    @cache
    def counted(text: str) -> int:
        return tokens(HashEmbedder(), text)

    @cache
    def summed(dimensions: int, text: str) -> Vector:
        return vector(HashEmbedder(dimensions), text)

    def tokens_of(_: HashEmbedder, text: str) -> int:
        return counted(text)

    def vector_of(embedder: HashEmbedder, text: str) -> Vector:
        return summed(embedder.dimensions, text)

    made: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    async def expected(random: Random, space: Space, *, memories: int, queries: int) -> Any:
        # A mutant of core may have replaced how spaces are registered.
        key = random.getstate(), space, memories, queries, spaces.register
        if key not in made:
            answers = await orders_of(random, space, memories=memories, queries=queries)
            made[key] = answers, random.getstate()
        answers, state = made[key]
        random.setstate(state)
        return answers

    replaced: tuple[tuple[Any, str, Any], ...] = (
        (passages, "split", cache(passages.split)),
        (passages, "halves", cache(passages.halves)),
        (passages, "group", in_tuples),
        (lexical, "analyse", cache(lexical.analyse)),
        (seeded_orders, "expected", expected),
        (HashEmbedder, "tokens", tokens_of),
        (HashEmbedder, "vector", vector_of),
        (terms, "LONG_TEXT", 10**6),
        (cutting, "LONG_TEXT", 10**6),
    )
    with ExitStack() as entered:
        for owner, name, replacement in replaced:
            entered.enter_context(patch.object(owner, name, replacement))
        yield
