"""TRA-05: who is let in over a network, and as whom."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from muniment.conformance.credentials import Credentials
from muniment.conformance.estate import TEXT
from muniment.conformance.invariant import Broken, Feature, NotExercised
from muniment.conformance.invariants.transports import each_call
from muniment.conformance.rules import TRANSPORT, Rules
from muniment.conformance.target import Refused, RemoteClient, Server
from muniment.conformance.trail import brief
from muniment.conformance.world import Answer, World, holds, same
from muniment.errors import AccessDenied, IssuerUnavailable, StorageUnavailable
from muniment.models import Agent, CallContext, Principal
from muniment.ports import Callers
from muniment.serving import incidents

RULES = Rules(TRANSPORT, since="1.1")

GOOD = "Bearer good"
WRONG = (None, "", "Bearer", "Bearer wrong", "Bearer goodx", "Basic Z29vZA==", "good")
SECRET = "hunter2"
PATIENCE = 20.0
"""Seconds in which two requests that come at once are both asked for their credentials."""
LOCAL = CallContext(
    principal=Principal(user="local", groups=frozenset({"locals"}), platform=True), default_project="acme/local"
)
"""The caller that the configuration names, which no request over a network is."""


@RULES(
    "TRA-05",
    "Over a network every request is asked who sends it. Without credentials that prove it no operation is reached; "
    "with them it is of that principal and no other, for as long as they prove it. What cannot be checked now lets "
    "nobody in, and is not unauthenticated.",
    features=frozenset({Feature.NETWORK}),
)
async def admission(world: World) -> None:
    target = world.transport.target
    if not target.can_ask:
        raise NotExercised("the target is of a network, and lacks a server; or say network = False")
    credentials = Credentials()
    async with target.server(world.transport.engine, Callers(LOCAL, credentials, anybody=True)) as server:
        await _nobody(world, server, credentials)
        await _that_principal(world, server, credentials)
        await _as_long_as_proved(world, server, credentials)
        await _side_by_side(server, credentials)
        await _unchecked(world, server, credentials)


async def _nobody(world: World, server: Server, credentials: Credentials) -> None:
    """Each operation with each header that proves nobody, and with the one that does."""
    engine = world.transport.engine
    async with AsyncExitStack() as connections:
        strangers = {header: await connections.enter_async_context(server.connect(header)) for header in WRONG}
        known = await connections.enter_async_context(server.connect(GOOD))
        async for caller, operation, payload in each_call(world, "admitted"):
            credentials.proves = {GOOD: caller.context.principal}
            engine.asked = None
            for header, stranger in strangers.items():
                await _refused(stranger, f"{operation} with the header {header!r}", operation, payload)
                same(f"what reached the engine with the header {header!r}", engine.asked, None)
            await known.call(operation, payload)
            same("what reached the engine with the right header", engine.asked, (operation, caller.context.principal))


async def _that_principal(world: World, server: Server, credentials: Credentials) -> None:
    """Whatever there is to know of a principal arrives, and nothing of the local caller."""
    engine, target = world.transport.engine, world.transport.target
    ada = Agent(name="ada", instance="1")
    for number, principal in enumerate(
        (
            Principal(user="corp:αλίκη 😀", groups=frozenset({"corp:eng", "corp:Eng Team"})),
            Principal(user="keeper", agent=ada),
            Principal(user="keeper", platform=True),
            Principal(user="keeper", read_only=True),
        )
    ):
        header = f"Bearer {number}"
        credentials.proves = {header: principal}
        await _call(server, header, "memory.list", {})
        same("who reached the engine", engine.asked, ("memory.list", principal))
    writer = {GOOD: Principal(user="wendy")}
    credentials.proves = {**writer}
    memory = await _call(server, GOOD, "memory.write", {"content": TEXT})
    record = await _call(server, GOOD, "memory.get", {"id": memory["id"]})
    same("what was written, and where", (record["content"], record["scope"]), (TEXT, "user"))
    (entry,) = (await _call(server, GOOD, "memory.history", {"id": memory["id"]}))["items"]
    same("who wrote it, by the audit trail", entry["actor"], "wendy")
    if target.surface is not None:
        same("through which surface", entry["surface"], target.surface)


async def _as_long_as_proved(world: World, server: Server, credentials: Credentials) -> None:
    """On one connection: the same header proves another one, and then nobody any more."""
    engine = world.transport.engine
    async with server.connect(GOOD) as client:
        for user in ("first", "second"):
            credentials.proves = {GOOD: Principal(user=user)}
            await client.call("memory.list", {})
            same("who reached the engine", engine.asked, ("memory.list", Principal(user=user)))
        credentials.proves = {}
        await _refused(client, "a call by credentials that were withdrawn", "memory.list", {})


async def _side_by_side(server: Server, credentials: Credentials) -> None:
    """Two that are asked at the same moment."""
    users = {f"Bearer {user}": user for user in ("left", "right")}
    credentials.proves = {header: Principal(user=user) for header, user in users.items()}
    credentials.meeting = asyncio.Barrier(len(users))
    try:
        async with asyncio.timeout(PATIENCE):
            writes = [_call(server, header, "memory.write", {"content": user}) for header, user in users.items()]
            await asyncio.gather(*writes)
    except TimeoutError:
        raise NotExercised(f"two requests were not asked for credentials at once within {PATIENCE:g} s") from None
    finally:
        credentials.meeting = None
    for header, user in users.items():
        own = await _call(server, header, "memory.list", {})
        same(f"what {user} has after both wrote at once", [one["content"] for one in own["items"]], [user])


async def _unchecked(world: World, server: Server, credentials: Credentials) -> None:
    """What is neither good nor bad arrives as it is, or by its code; what nobody foresaw shows an id alone."""
    engine, doing = world.transport.engine, "a call by credentials that cannot be judged"
    refusals = [IssuerUnavailable(issuer="corp"), StorageUnavailable("It is away."), AccessDenied("Too small a scope.")]
    # What is told of these is TRA-09's.
    withheld = tuple(incidents.OF_THE_SERVER)
    async with server.connect(GOOD) as client:
        for expected in refusals:
            credentials.proves = {GOOD: expected}
            engine.asked = None
            with engine.quiet():
                refusal = await _refused(client, doing, "memory.list", {}, expected.code)
            if not isinstance(expected, withheld):
                same(f"the message of {expected.code}", refusal.message, expected.message)
            same("what reached the engine", engine.asked, None)
        credentials.proves = {GOOD: RuntimeError(SECRET)}
        with engine.quiet():
            refusal = await _refused(client, doing, "memory.list", {}, "internal")
    same("whether the refusal repeats the error", SECRET in f"{refusal.message} {refusal.details}", False)
    holds("id" in refusal.details, "the details of an internal error", expected="an id", seen=refusal.details)


async def _call(server: Server, header: str | None, operation: str, payload: Mapping[str, Any]) -> Answer:
    async with server.connect(header) as client:
        return (await client.call(operation, payload)).answer


async def _refused(
    client: RemoteClient, doing: str, operation: str, payload: Mapping[str, Any], code: str = "unauthenticated"
) -> Refused:
    try:
        reply = await client.call(operation, payload)
    except Refused as refusal:
        same(f"the refusal of {doing}", refusal.code, code)
        return refusal
    raise Broken(doing, expected=f"refusal {code}", seen=brief(reply.answer))
