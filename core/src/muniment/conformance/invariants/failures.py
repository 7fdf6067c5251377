"""EMB-06 and EMB-07: embedders that must fail, and say so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import numpy as np

from muniment.conformance.invariant import Broken, Feature, NotExercised
from muniment.conformance.rules import EMBEDDER, Rules
from muniment.conformance.target import FailingEmbedder, FailureKind
from muniment.conformance.world import World, holds, same
from muniment.errors import EmbedderUnavailable, MunimentError

RULES = Rules(EMBEDDER)
SENTENCE = "Is anybody there?"
SLACK = 1.0


@RULES(
    "EMB-06",
    "An unreachable or failing provider is embedder_unavailable within its time-out; a bad key is told apart.",
    features=frozenset({Feature.PROVIDER}),
)
async def failing_providers(world: World) -> None:
    await _works(world)
    target = world.embedder_target
    failing = [one for one in target.fail() if one.kind is not FailureKind.UNKNOWN_MODEL]
    wanted = {FailureKind.UNREACHABLE, FailureKind.BAD_KEY} if target.remote else set[FailureKind]()
    missing = wanted - {one.kind for one in failing}
    if missing:
        raise NotExercised(f"the target gives no embedder with {', '.join(sorted(missing))}")
    messages: dict[FailureKind, str] = {}
    for one in failing:
        error = await _fails(world, one)
        messages[one.kind] = error.message
        if one.kind is not FailureKind.BAD_KEY:
            same(f"the code of an {one.kind}", error.code, EmbedderUnavailable.code)
    bad_key = messages.get(FailureKind.BAD_KEY)
    others = [message for kind, message in messages.items() if kind is not FailureKind.BAD_KEY]
    if bad_key is not None:
        holds("key" in bad_key.lower(), "the message for a bad key", expected="the word key", seen=bad_key)
        same("whether a bad key has the message of another failure", bad_key in others, False)


@RULES("EMB-07", "A never-seen model name fails with the name; nothing is substituted.")
async def unknown_model(world: World) -> None:
    await _works(world)
    unknown = _of_kind(world.embedder_target.fail(), FailureKind.UNKNOWN_MODEL)
    if not unknown:
        raise NotExercised("the target gives no embedder with a never-seen model name")
    for one in unknown:
        holds(bool(one.names), "the never-seen name that the target gives", expected="a name", seen="none")
        error = await _fails(world, one)
        allowed = ("embedder_unavailable", "configuration_error", "plugin_error")
        holds(error.code in allowed, "the code of the refusal", expected=" or ".join(allowed), seen=error.code)


def _of_kind(failing: Sequence[FailingEmbedder], kind: FailureKind) -> list[FailingEmbedder]:
    return [one for one in failing if one.kind is kind]


async def _works(world: World) -> None:
    """The usual configuration gives a vector, so refusing everything is no answer here."""
    vectors = await world.embedder.inner.embed_passages([SENTENCE, "Nobody answers."])
    same("how many vectors the usual configuration gives", len(vectors), 2)
    holds(bool(np.isfinite(vectors).all()), "its vectors", expected="finite", seen="not finite")
    apart = float(np.abs(vectors[0] - vectors[1]).max())
    again = float(np.abs((await world.embedder.inner.embed_passages([SENTENCE]))[0] - vectors[0]).max())
    holds(apart > 1e-3 > again, "its vectors", expected="one for each text", seen=f"{apart:g} and {again:g} apart")


async def _fails(world: World, failing: FailingEmbedder) -> MunimentError:
    """The typed refusal between making the embedder and its first vector, in time and naming what it must."""
    world.trail.add(f"use an embedder with an {failing.kind} {failing.names}")
    started = time.monotonic()
    try:
        async with asyncio.timeout(failing.within + SLACK):
            seen = await _first_vector(failing)
    except TimeoutError:
        took = time.monotonic() - started
        raise Broken(f"an {failing.kind}", expected=f"within {failing.within} s", seen=f"{took:.1f} s") from None
    except MunimentError as error:
        holds(failing.names in error.message, "the message", expected=failing.names, seen=error.message)
        return error
    raise Broken(f"an {failing.kind}", expected="a typed refusal", seen=seen)


async def _first_vector(failing: FailingEmbedder) -> str:
    embedder = failing.make()
    try:
        await embedder.open()
        space = await embedder.space()
        vectors = await embedder.embed_passages([SENTENCE])
    finally:
        await embedder.close()
    return f"a vector of {vectors.shape[-1]} dimensions in the space {space.id}"
