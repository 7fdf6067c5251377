"""TRA-09: what a caller over a network learns of the server's own parts."""

from __future__ import annotations

import json

from muniment.conformance.credentials import Credentials
from muniment.conformance.estate import TEXT
from muniment.conformance.invariant import Feature, NotExercised
from muniment.conformance.rules import TRANSPORT, Rules
from muniment.conformance.target import Refused
from muniment.conformance.world import World, holds, same
from muniment.errors import MunimentError
from muniment.models import CallContext, Principal
from muniment.ports import Callers
from muniment.serving import incidents

RULES = Rules(TRANSPORT, since="1.2")

GOOD = "Bearer good"
SECRETS = ("/var/lib/private/memories.sqlite", "db.internal:5432", "hunter2")


@RULES(
    "TRA-09",
    "Over a network a refusal of the server's own parts (storage, embedder, configuration) has its code, says what to "
    "do, and has an id of its own, and no path, host or setting, whether a call or the asking of credentials was "
    "refused.",
    features=frozenset({Feature.NETWORK}),
)
async def parts_are_not_told_of(world: World) -> None:
    ids: list[str] = []
    alice = world.caller("alice")
    for refusal in _each():
        with world.transport.engine.failing(refusal):
            arrived = await alice.refused(refusal.code, "memory.get", id="an id")
        ids.append(_checked("a call", arrived))
        holds(bool(await alice("memory.write", content=TEXT)), "a write afterwards", expected="a receipt", seen="none")
    ids += await _at_the_door(world)
    same("how many ids so many refusals have", len(set(ids)), len(ids))


def _each() -> list[MunimentError]:
    """One of each, and one of a plugin's own kind, whose messages and details hold all that is secret."""
    said = f"The storage at {' '.join(SECRETS)} is away."
    kinds = tuple(incidents.OF_THE_SERVER)
    own = [type(f"Own{kind.__name__}", (kind,), {}) for kind in kinds]
    return [kind(said, path=SECRETS[0], host=SECRETS[1], setting=SECRETS[2]) for kind in (*kinds, *own)]


async def _at_the_door(world: World) -> list[str]:
    target = world.transport.target
    if not target.can_ask:
        raise NotExercised("the target is of a network, and lacks a server; or say network = False")
    credentials = Credentials()
    local = CallContext(principal=Principal(user="local"))
    ids: list[str] = []
    async with (
        target.server(world.transport.engine, Callers(local, credentials, anybody=True)) as server,
        server.connect(GOOD) as client,
    ):
        for refusal in _each():
            credentials.proves = {GOOD: refusal}
            try:
                with world.transport.engine.quiet():
                    reply = await client.call("memory.list", {})
            except Refused as arrived:
                same("the refusal of credentials that cannot be checked", arrived.code, refusal.code)
                ids.append(_checked("the asking of credentials", arrived))
            else:
                same("a call by credentials that cannot be checked", reply.answer, refusal.code)
    return ids


def _checked(what: str, arrived: Refused) -> str:
    """The id that the refusal has."""
    shown = f"{arrived.message} {json.dumps(dict(arrived.details), ensure_ascii=False)}"
    for part in SECRETS:
        same(f"whether the refusal of {what} holds {part!r}", part in shown, False)
    same(f"the details of the refusal of {what}", list(arrived.details), ["id"])
    fresh = str(arrived.details["id"])
    holds(fresh in arrived.message, "its message", expected="the id, and what to do", seen=arrived.message)
    return fresh
