"""ACC-12 and AUTH-05: the audit trails of what is no memory, and who reads them."""

from __future__ import annotations

import hashlib

from muniment.authentication.audited_tokens import AuditedTokens
from muniment.authentication.tokens import PREFIX
from muniment.conformance.agents_estate import PLATFORM
from muniment.conformance.answers import moment
from muniment.conformance.estate import READERS, WRITERS, estate
from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import Answer, Caller, World, holds, same
from muniment.models import Agent

RULES = Rules(STORAGE_AND_TRANSPORT, since="1.2")

PAGE = 2


@RULES(
    "ACC-12",
    "A project's history says who registered, shared and unshared it, when and through which surface, and that it "
    "hides another of its key, to whoever reads it; with which groups only its owner is told. It has no memory's entry "
    "and no other project's, and is read in pages, newest first.",
)
async def of_projects(world: World) -> None:
    place = await estate(world)
    beside = await estate(world, "acme/beside")
    alice, bob = place.owner, world.caller("bob", WRITERS, agent=Agent(name="helper", instance="pod-1"))
    await alice("project.unshare", project=place.key, group="spare")
    await bob("memory.write", content="A new deed.", project=place.key)
    by_alice = {"actor": "alice", "agent": None, "surface": alice.context.surface}
    changes: list[tuple[str, list[str], dict[str, str | None] | None]] = [
        ("project.register", ["key"], None),
        ("project.share", ["shares"], {"group": WRITERS, "access": "rw"}),
        ("project.share", ["shares"], {"group": READERS, "access": "ro"}),
        ("project.share", ["shares"], {"group": "spare", "access": "ro"}),
        ("project.unshare", ["shares"], {"group": "spare", "access": None}),
    ]
    own = await _history(alice, place.key)
    # Entries of one time are in the order of their ids.
    oldest_first = sorted(own, key=lambda one: one["version"])
    same("the entries, oldest first", [one["action"] for one in oldest_first], [action for action, _, _ in changes])
    for version, (entry, (action, changed, details)) in enumerate(zip(oldest_first, changes, strict=True), 1):
        wanted: Answer = {**by_alice, "action": action, "changed": changed, "details": details, "version": version}
        wanted |= {"project_id": place.project, "scope_key": f"p:{place.project}", "memory_id": None}
        same(f"the entry of version {version}", {field: entry[field] for field in wanted}, wanted)
    times = [moment(entry["at"]) for entry in own]
    same("the times, newest first", times, sorted(times, reverse=True))
    same("the history by the project's id", await _history(alice, place.project), own)
    told = [{**entry, "details": None} for entry in own]
    for member in (bob, world.caller("rita", READERS)):
        same(f"what {member.user} is told", await _history(member, place.key), told)
    same("how long another project's history is", len(await _history(beside.owner, beside.key)), len(changes) - 1)
    for stranger in (world.caller("mallory"), world.caller("sam", "spare")):
        await stranger.refused("unknown_project", "project.history", project=place.project)
    await alice.refused(
        "invalid_input", "project.history", project=beside.key, cursor=await _cursor(alice, project=place.key)
    )
    await _hides_another(world, place.project)


async def _hides_another(world: World, hidden: str) -> None:
    """bob owns a project with the key of one that is shared with him."""
    own = await world.caller("bob")("project.identify", project="acme/estate")
    await world.caller("bob", WRITERS)("project.identify", project="acme/estate")
    entries = await _history(world.caller("bob", WRITERS), own["project"]["id"])
    collisions = [one["details"] for one in entries if one["action"] == "project.collision"]
    same("the entries of a collision", collisions, [{"key": "acme/estate", "hidden": [hidden]}])


async def _history(caller: Caller, project: str) -> list[Answer]:
    """A project's history in pages, each entry once."""
    found: list[Answer] = []
    cursor: str | None = None
    while True:
        page = await caller("project.history", project=project, limit=PAGE, cursor=cursor)
        holds(len(page["items"]) <= PAGE, "a page", expected=f"at most {PAGE}", seen=len(page["items"]))
        found += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            whole = (await caller("project.history", project=project, limit=200))["items"]
            same("a history read in pages", found, whole)
            return found


async def _cursor(caller: Caller, *, project: str) -> str:
    return str((await caller("project.history", project=project, limit=1))["cursor"])


@RULES(
    "AUTH-05",
    "Making an API token and revoking it leave one entry each, with who did it, through what, for whom and with which "
    "scopes, and never a secret or its hash; a principal of the platform reads all of them in pages, newest first, and "
    "nobody else any.",
)
async def of_tokens(world: World) -> None:
    platform = world.caller(PLATFORM, platform=True)
    same("the entries before there is a token", await _trail_of_tokens(platform), [])
    olga, otto = (AuditedTokens(world.storage, actor, f"surface of {actor}") for actor in ("olga", "otto"))
    made = [await olga.create(f"corp:user{number}", frozenset({"eng"}), ("write",), None) for number in range(3)]
    revoked = made[1][1].id
    for who in (otto, olga):
        await who.revoke(revoked)
    same("what revoking an unknown token gives", await otto.revoke("unknown"), None)
    entries = await _trail_of_tokens(platform)
    wanted = [(token.id, "token.create", "olga", token.user) for _, token in made]
    wanted.append((revoked, "token.revoke", "otto", made[1][1].user))
    seen = [(one["details"]["token"], one["action"], one["actor"], one["details"]["user"]) for one in entries]
    same("tokens, actions, actors and users", sorted(seen), sorted(wanted))
    times = [moment(one["at"]) for one in entries]
    same("the times, newest first", times, sorted(times, reverse=True))
    for entry in entries:
        kept = (entry["surface"], entry["details"]["groups"], entry["details"]["scopes"], entry["memory_id"])
        same("surface, groups, scopes and memory", kept, (f"surface of {entry['actor']}", ["eng"], ["write"], None))
    for secret, _ in made:
        for hidden in (secret.removeprefix(PREFIX), hashlib.sha256(secret.encode()).hexdigest()):
            same("whether an entry holds a secret or its hash", hidden in str(entries), False)
    ada = Agent(name="ada", instance="1")
    for other in (world.caller("alice"), world.caller("corp:user0", "eng"), world.caller("keeper", agent=ada)):
        await other.refused("access_denied", "token.history")


async def _trail_of_tokens(platform: Caller) -> list[Answer]:
    found: list[Answer] = []
    cursor: str | None = None
    while True:
        page = await platform("token.history", limit=PAGE, cursor=cursor)
        found += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            return found
