"""Runs invariants on a target: each on a fresh subject, on an event loop of its own, and never longer than
its limit.

A check that waits for ever is cancelled; one that blocks its event loop is left behind in its thread, so that
the others still run. No test framework is involved.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from muniment import __version__
from muniment.conformance.bench import world_of
from muniment.conformance.invariant import (
    Broken,
    Feature,
    Invariant,
    NotExercised,
    Outcome,
    features_of,
)
from muniment.conformance.registry import judging, select
from muniment.conformance.report import Report, Result
from muniment.conformance.target import EmbedderTarget, NotRun, StorageTarget, Target
from muniment.conformance.world import Refused, World
from muniment.errors import CapabilityNotSupported, MunimentError
from muniment.hookspecs import CONTRACT

TIME_LIMIT = 120.0
"""Seconds for one invariant."""
GRACE = 10.0
"""Seconds that a check which was cut off has for closing its subject."""

Progress = Callable[[Result], None]


async def run(
    target: Target,
    *,
    only: Sequence[str] | None = None,
    seed: int | None = None,
    timeout: float = TIME_LIMIT,  # noqa: ASYNC109
    progress: Progress | None = None,
) -> Report:
    """Judge a target by all its invariants, or by the ids and families of ``only``.

    ``seed`` None takes one from the clock; the report names it. ``timeout`` is in seconds for each invariant.
    Raises UnknownInvariant, and NotRun where the target's component cannot be had.
    """
    chosen = select(target, only)
    seed = time.time_ns() % 2**31 if seed is None else seed
    versions = {**_versions(target), **await _described(target, timeout)}
    results: list[Result] = []
    for invariant in chosen:
        result = await run_one(target, invariant, seed=seed, seconds=timeout)
        results.append(result)
        if progress is not None:
            progress(result)
    return Report(
        plugin=target.name,
        real=target.real,
        versions=versions,
        configuration=dict(target.describe()),
        seed=seed,
        results=tuple(results),
        complete=len(chosen) == len(judging(target)),
    )


async def run_one(target: Target, invariant: Invariant, *, seed: int, seconds: float = TIME_LIMIT) -> Result:
    """How one invariant ends on a target. Raises NotRun."""
    started = time.monotonic()
    features = features_of(target)
    if missing := invariant.features - features:
        ended = _without(missing)
    else:
        ended = await _isolated(target, invariant, seed, seconds)
    ended = _declared(target, invariant, ended)
    return Result(
        id=invariant.id,
        outcome=_against_known(target, invariant, ended.outcome),
        seconds=time.monotonic() - started,
        detail=_with_link(target, invariant, ended),
        statement=invariant.statement,
        level=invariant.level_for(features),
        docs=invariant.docs,
        expected=ended.expected,
        seen=ended.seen,
        steps=ended.steps,
    )


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a check ended, before known failures and capabilities are considered."""

    outcome: Outcome
    detail: str
    expected: str | None = None
    seen: str | None = None
    steps: tuple[str, ...] = ()
    refusal: str | None = None


def _without(missing: frozenset[Feature]) -> _Ended:
    """A plugin without a provider has nothing to fail; a target that cannot bring a fault about is
    incomplete."""
    names = ", ".join(sorted(missing))
    if missing <= {Feature.PROVIDER}:
        return _Ended(Outcome.UNDECLARED, "the embedder has no provider that could fail")
    return _Ended(Outcome.NOT_EXERCISED, f"the target has no {names}; give it that method")


def _declared(target: Target, invariant: Invariant, ended: _Ended) -> _Ended:
    """An undeclared capability must refuse with its own code; whatever else happens is a failure."""
    undeclared = invariant.capabilities - target.capabilities
    if not undeclared:
        return ended
    names = ", ".join(sorted(undeclared))
    if ended.refusal == CapabilityNotSupported.code:
        return _Ended(Outcome.UNDECLARED, f"{names} is not declared, and refused")
    expected = f"refusal {CapabilityNotSupported.code}, or a declaration"
    return _Ended(Outcome.FAIL, f"{names} is not declared", expected, ended.detail, ended.steps)


def _against_known(target: Target, invariant: Invariant, outcome: Outcome) -> Outcome:
    if invariant.id not in target.known_failures:
        return outcome
    match outcome:
        case Outcome.FAIL | Outcome.ERROR:
            return Outcome.KNOWN_FAILURE
        case Outcome.PASS | Outcome.UNDECLARED:
            return Outcome.STALE_KNOWN_FAILURE
        case _:
            return outcome


def _with_link(target: Target, invariant: Invariant, ended: _Ended) -> str:
    link = target.known_failures.get(invariant.id)
    if link is None:
        return ended.detail
    if ended.outcome in (Outcome.PASS, Outcome.UNDECLARED):
        return f"it holds now; take it out of known_failures ({link})"
    return f"{ended.detail} (known: {link})"


async def _isolated(target: Target, invariant: Invariant, seed: int, seconds: float) -> _Ended:
    """Run the check on an event loop in a thread, and wait for it no longer than its time allows."""
    check = _InThread(lambda: _timed(target, invariant, seed, seconds))
    check.start()
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(check.ended)), seconds + 2 * GRACE)
    except TimeoutError:
        check.cancel()
        return _Ended(Outcome.ERROR, f"cut off after {seconds:g} s: it blocks the event loop, or cannot be cancelled")
    except asyncio.CancelledError:
        check.cancel()
        await asyncio.wait([asyncio.wrap_future(check.ended)], timeout=GRACE)
        raise


class _InThread:
    """A coroutine on an event loop of its own in a daemon thread, which can be left behind."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.ended: Future[_Ended] = Future()
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[_Ended] | None = None

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="muniment-conformance", daemon=True).start()

    def cancel(self) -> None:
        """Ask the coroutine to end."""
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _run(self) -> None:
        try:
            ended = asyncio.run(self._main())
        except BaseException as error:
            outcome: BaseException | _Ended = error
        else:
            outcome = ended
        if not self.ended.set_running_or_notify_cancel():
            return
        if isinstance(outcome, BaseException):
            self.ended.set_exception(outcome)
        else:
            self.ended.set_result(outcome)

    async def _main(self) -> _Ended:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        return await self._make()


async def _timed(target: Target, invariant: Invariant, seed: int, seconds: float) -> _Ended:
    """The check with a fresh subject, cancelled at its time limit; left running if it ignores that."""
    steps: list[World] = []
    running = asyncio.ensure_future(_checked(target, invariant, seed, steps))
    try:
        done, _ = await asyncio.wait({running}, timeout=seconds)
        if not done:
            running.cancel()
            await asyncio.wait({running}, timeout=GRACE)
            trail = steps[0].trail.steps() if steps else ()
            return _Ended(Outcome.ERROR, f"cut off after {seconds:g} s without an end", steps=trail)
        return running.result()
    finally:
        running.cancel()


async def _checked(target: Target, invariant: Invariant, seed: int, worlds: list[World]) -> _Ended:
    """Open a subject, run the check, close it, and put what it raised into words."""
    random = Random(f"{seed}:{invariant.id}")
    try:
        async with world_of(target, random) as world:
            worlds.append(world)
            await invariant.check(world)
    except NotRun:
        raise
    except NotExercised as error:
        return _Ended(Outcome.NOT_EXERCISED, str(error), steps=_steps(worlds))
    except Broken as error:
        return _Ended(Outcome.FAIL, error.what, error.expected, error.seen, _steps(worlds))
    except Refused as error:
        detail = f"an operation that must succeed was refused: {error}"
        return _Ended(Outcome.FAIL, detail, "an answer", f"refusal {error.code}", _steps(worlds), refusal=error.code)
    except MunimentError as error:
        return _Ended(Outcome.FAIL, f"the plugin refused: {error}", "an answer", error.code, _steps(worlds))
    except Exception as error:
        return _Ended(Outcome.ERROR, f"{type(error).__name__}: {error}"[:2_000], steps=_steps(worlds))
    return _Ended(Outcome.PASS, "; ".join(worlds[0].notes))


def _steps(worlds: list[World]) -> tuple[str, ...]:
    return worlds[0].trail.steps() if worlds else ()


def _versions(target: Target) -> dict[str, str]:
    distribution = target.distribution or f"muniment-{target.name}"
    try:
        plugin = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        plugin = "not installed as a distribution"
    contract = ".".join(map(str, CONTRACT))
    return {"muniment": __version__, "contract": contract, target.name: plugin}


async def _described(target: Target, seconds: float) -> dict[str, str]:
    """What the plugin says of its server or model; empty where it cannot be asked. Raises NotRun."""
    probe = _InThread(lambda: _ask(target))
    probe.start()
    try:
        return dict(await asyncio.wait_for(asyncio.wrap_future(probe.ended), seconds))  # type: ignore[arg-type]
    except NotRun:
        raise
    except Exception:
        return {}


async def _ask(target: Target) -> dict[str, str]:
    if isinstance(target, EmbedderTarget):
        async with target.open() as embedder:
            return {"model": (await embedder.space()).id}
    async with cast("StorageTarget[Any]", target).open() as subject:
        return dict(await subject.storage.describe())
