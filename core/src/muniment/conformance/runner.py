"""Runs invariants on a target, each by itself, and makes the report.

A plugin that hangs cannot hold the run up: each check is cut off at its limit (see ``isolation``), and where that keeps
happening the run is stopped. No test framework is involved.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from muniment import __version__
from muniment.config import redact, redact_named
from muniment.conformance.ending import Ended, against_known, declared, text_of, with_link, without
from muniment.conformance.invariant import Invariant, features_of
from muniment.conformance.isolation import InThread, isolated
from muniment.conformance.registry import NotJudged, judging, select
from muniment.conformance.report import Report, Result
from muniment.conformance.target import EmbedderTarget, NotRun, StorageTarget, Target, TransportTarget

TIME_LIMIT = 120.0
"""Seconds for one invariant."""
CUT_OFFS = 5
"""A run is stopped after so many checks that had to be cut off."""

_OF_THE_RUN = frozenset({"place", "schema"})
"""What a storage's ``describe`` says of where the suite put it, not of what it is."""

Progress = Callable[[Result], None]
Runs = Callable[[Target, Invariant, int, float], Awaitable[Ended]]


async def run(
    target: Target,
    *,
    only: Sequence[str] | None = None,
    seed: int | None = None,
    timeout: float = TIME_LIMIT,  # noqa: ASYNC109
    progress: Progress | None = None,
    url: str | None = None,
) -> Report:
    """Judge a target by all its invariants, or by the ids and families of ``only``.

    ``seed`` None takes one from the clock; the report names it. ``timeout`` is in seconds for each invariant;
    after ``CUT_OFFS`` that took longer the run is stopped. ``url`` is what the target was made with, for the command
    lines of the report. Raises NotJudged where the target says what no report can hold, UnknownInvariant, and NotRun
    where the target's component cannot be had.
    """
    chosen = select(target, only)
    seed = new_seed() if seed is None else seed
    versions = {**_versions(target), **await _described(target, timeout)}
    configuration = _configured(target)
    results = await run_all(target, chosen, seed=seed, seconds=timeout, progress=progress)
    return Report(
        plugin=target.name,
        real=target.real,
        versions=versions,
        configuration=configuration,
        seed=seed,
        results=results,
        complete=len(chosen) == len(judging(target)),
        not_run=tuple(one.id for one in chosen[len(results) :]),
        url=None if url is None else redact(url),
        over=None if target.over is None else target.over.name,
        timeout=unusual(timeout),
    )


def new_seed() -> int:
    """A seed from the clock."""
    return time.time_ns() % 2**31


def unusual(seconds: float) -> float | None:
    """A limit for each invariant; None where it is the usual one, which no command line has to name."""
    return None if seconds == TIME_LIMIT else float(seconds)


async def run_all(
    target: Target, invariants: Sequence[Invariant], *, seed: int, seconds: float, progress: Progress | None
) -> tuple[Result, ...]:
    """How each ends; fewer where ``CUT_OFFS`` checks had to be cut off, after which the rest is not run."""
    results: list[Result] = []
    for invariant in invariants:
        result = await run_one(target, invariant, seed=seed, seconds=seconds)
        results.append(result)
        if progress is not None:
            progress(result)
        if sum(one.cut_off for one in results) == CUT_OFFS:
            break
    return tuple(results)


async def run_one(
    target: Target, invariant: Invariant, *, seed: int, seconds: float = TIME_LIMIT, runs: Runs = isolated
) -> Result:
    """How one invariant ends on a target; ``runs`` is where its check is run. Raises NotRun."""
    started = time.monotonic()
    features = features_of(target)
    if missing := invariant.features - features:
        ended = without(missing)
    else:
        ended = await runs(target, invariant, seed, seconds)
    ended = declared(target, invariant, ended)
    return Result(
        id=invariant.id,
        outcome=against_known(target, invariant, ended.outcome),
        seconds=time.monotonic() - started,
        detail=with_link(target, invariant, ended),
        statement=invariant.statement,
        level=invariant.level_for(features),
        docs=invariant.docs,
        expected=ended.expected,
        seen=ended.seen,
        steps=ended.steps,
        cut_off=ended.cut_off,
    )


def _versions(target: Target) -> dict[str, str]:
    distribution = target.distribution or f"muniment-{target.name}"
    try:
        plugin = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        plugin = "not installed as a distribution"
    return {"muniment": __version__, "contract": target.contract, target.name: plugin}


def _configured(target: Target) -> dict[str, str]:
    """What the target says of its configuration, redacted. Raises NotJudged, and NotRun."""
    method = f"{type(target).__name__}.describe()"
    try:
        told: object = target.describe()
    except NotRun:
        raise
    except Exception as error:
        raise NotJudged(f"{method} raised {type(error).__name__} ({redact(text_of(error))}); mend it.") from error
    over = {} if target.over is None else {"over": target.over.name}
    return {**_facts(method, told), **over}


def _facts(method: str, told: object) -> dict[str, str]:
    """What ``method`` gave, redacted. Raises NotJudged unless that maps texts to texts."""
    remedy = "return a mapping of texts, such as {'storage': 'postgresql://host/db'}"
    if not isinstance(told, Mapping):
        raise NotJudged(f"{method} gave a value of type {type(told).__name__}; {remedy}.")
    facts: dict[str, str] = {}
    for name, value in cast("Mapping[object, object]", told).items():
        if not isinstance(name, str) or not isinstance(value, str):
            kind = type(value if isinstance(name, str) else name).__name__
            raise NotJudged(f"{method} gave a mapping with a value of type {kind}; {remedy}.")
        facts[name] = redact_named(name, value)
    return facts


async def _described(target: Target, seconds: float) -> dict[str, str]:
    """What the plugin says of its server or model; empty where it cannot be asked. Raises NotRun, and NotJudged where
    it says no texts.

    Where the server is comes from the target, and is another place for each run that starts its own.
    """
    probe = InThread(lambda: _ask(target))
    probe.start()
    try:
        method, told = await asyncio.wait_for(asyncio.wrap_future(probe.ended), seconds)
    except NotRun:
        raise
    except Exception:
        return {}
    return {name: value for name, value in _facts(method, told).items() if name not in _OF_THE_RUN}


async def _ask(target: Target) -> tuple[str, object]:
    """The method that was asked, and its answer."""
    if isinstance(target, EmbedderTarget):
        async with target.open() as embedder:
            return "space() of the embedder", {"model": (await embedder.space()).id}
    if isinstance(target, TransportTarget):
        return "", {}
    async with cast("StorageTarget[Any]", target).open() as subject:
        return "describe() of the storage", await subject.storage.describe()
