"""AUTH-01 to AUTH-04: what a storage keeps of API tokens. Whom one lets in is core's."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from muniment.conformance.loading import new_id
from muniment.conformance.rules import STORAGE, Rules
from muniment.conformance.world import World, holds, same
from muniment.ports import NewToken, Position, Storage, StoredToken

RULES = Rules(STORAGE, since="1.1")

END = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
NAMES = ("alice", "Alice", "corp:alice", "100% αλίκη 記憶 😀", "a'b\"c\\d$e.f")
SCOPES = (("read",), ("write", "agent=ada/x/1"), ("read", "write", "platform"))
ROUNDS = 8


def _token(world: World, user: str = "alice", *, scopes: tuple[str, ...] = ("read",), **more: object) -> NewToken:
    id_ = new_id(world.random)
    token = NewToken(id_, hashlib.sha256(id_.encode()).hexdigest(), user, frozenset(), scopes, None)
    return replace(token, **more)  # pyright: ignore[reportArgumentType]


def _kept(token: NewToken, created_at: datetime) -> StoredToken:
    return StoredToken(token.id, token.user, token.groups, token.scopes, created_at, token.expires_at)


@RULES(
    "AUTH-01",
    "An API token is found by the whole hash of its secret and by nothing else, as it was kept: user, groups, scopes "
    "and end; through every client, and after closing and reopening the storage.",
)
async def found_by_its_hash(world: World) -> None:
    second = await world.second_storage()
    made = [
        _token(
            world,
            name,
            scopes=SCOPES[number % len(SCOPES)],
            groups=frozenset(NAMES[:number]),
            expires_at=END if number % 2 else None,
        )
        for number, name in enumerate(NAMES)
    ]
    kept: dict[str, StoredToken] = {}
    for token in made:
        stored = await world.storage.add_token(token)
        same("a token, when it is kept", stored, _kept(token, stored.created_at))
        kept[token.digest] = stored
    for storage in (world.storage, second):
        await _all_found(storage, kept)
    one = made[0]
    others = (one.id, one.user, one.digest.upper(), one.digest[:-1], f"{one.digest} ", "%", "_" * 64, "", "0" * 64)
    for digest in others:
        same(f"what {digest!r} finds", await world.storage.find_token(digest), None)
    await world.reopen(world.caller("alice"))
    await _all_found(world.storage, kept)


async def _all_found(storage: Storage, kept: dict[str, StoredToken]) -> None:
    for digest, token in kept.items():
        same(f"the token of {token.user}", await storage.find_token(digest), token)


@RULES(
    "AUTH-02",
    "A token that was revoked is found revoked from then on, through every client, also when it was being used or "
    "revoked meanwhile; it keeps the time of that, and everything else; no other token is revoked.",
)
async def revoked_for_good(world: World) -> None:
    first, second = world.storage, await world.second_storage()
    token, other = _token(world), _token(world)
    created, beside = await first.add_token(token), await first.add_token(other)
    for storage in (first, second):
        same("the token before it is revoked", await storage.find_token(token.digest), created)
    revoked = await first.revoke_token(token.id)
    at = revoked and revoked.revoked_at
    holds(at is not None and at >= created.created_at, "when it was revoked", expected="a time", seen=at)
    same("the token, when it is revoked", revoked, replace(created, revoked_at=at))
    for storage in (first, second):
        same("the revoked token", await storage.find_token(token.digest), revoked)
        same("another one", await storage.find_token(other.digest), beside)
    async with world.unchanged("revoking a token again, or one that there is not"):
        same("what revoking it again gives", await second.revoke_token(token.id), revoked)
        for unknown in (new_id(world.random), token.digest, "", "%"):
            same(f"what revoking {unknown!r} gives", await first.revoke_token(unknown), None)
    for number in range(ROUNDS):
        raced = _token(world)
        await first.add_token(raced)
        async with world.race(3, "revoke_token", "touch_token"):
            turns = [first.revoke_token(raced.id), second.touch_token(raced.id), second.revoke_token(raced.id)]
            ended = await asyncio.gather(*(turns[number % 3 :] + turns[: number % 3]))
        times = {one.revoked_at for one in ended if isinstance(one, StoredToken)}
        found = await first.find_token(raced.digest)
        same("when both callers say that it was revoked, and what is stored", times, {found and found.revoked_at})
        holds(found is not None and found.revoked_at is not None, "whether it is revoked", expected=True, seen=found)
        holds(found is not None and found.last_used_at is not None, "its last use", expected="a time", seen=found)


@RULES(
    "AUTH-03",
    "Noting that a token is used sets the time of its last use, which never goes back, and changes nothing else: no "
    "other token, and none that there is not.",
)
async def last_use(world: World) -> None:
    first, second = world.storage, await world.second_storage()
    token, other = _token(world, groups=frozenset(NAMES), expires_at=END), _token(world)
    created, beside = await first.add_token(token), await first.add_token(other)
    for storage in (first, second):
        same("the token before it is used", await storage.find_token(token.digest), created)
    latest = created.created_at
    for storage in (first, second, first):
        await storage.touch_token(token.id)
        found = await second.find_token(token.digest)
        used = found and found.last_used_at
        holds(used is not None and used >= latest, "its last use", expected=f"{latest} or later", seen=used)
        same("the token, used", found, replace(created, last_used_at=used))
        latest = used or latest
    same("another token", await first.find_token(other.digest), beside)
    revoked = await first.revoke_token(token.id)
    await second.touch_token(token.id)
    found = await first.find_token(token.digest)
    used = found and found.last_used_at
    same("a token that is used after it was revoked", found, revoked and replace(revoked, last_used_at=used))
    async with world.unchanged("the use of a token that there is not"):
        for unknown in (new_id(world.random), token.digest, "", "%"):
            await first.touch_token(unknown)


@RULES(
    "AUTH-04",
    "The list has every token, whoever's it is and also when it is over, newest first and then by id, page by page: "
    "each exactly once, also while others are added.",
)
async def listed(world: World) -> None:
    first, second = world.storage, await world.second_storage()
    same("the tokens before there are any", await _pages(first, 3), [])
    added = [await first.add_token(_token(world, name)) for name in NAMES]
    revoked = await first.revoke_token(added[1].id)
    expired = await first.add_token(_token(world, expires_at=datetime(2001, 1, 1, tzinfo=UTC)))
    tokens = {one.id: one for one in (*added, expired)}
    tokens[added[1].id] = replace(added[1], revoked_at=revoked and revoked.revoked_at)
    expected = sorted(tokens.values(), key=lambda one: (-_microseconds(one.created_at), one.id))
    for storage in (first, second):
        for limit in (1, 2, 50):
            same(f"the tokens, {limit} a page", await _pages(storage, limit), expected)
    seen: list[StoredToken] = []
    after = None
    while page := await first.list_tokens(after=after, limit=2):
        seen += page
        after = Position(page[-1].created_at, page[-1].id)
        await second.add_token(_token(world))
    same("the tokens, while others are added", seen, expected)


async def _pages(storage: Storage, limit: int) -> Sequence[StoredToken]:
    found: list[StoredToken] = []
    while page := await storage.list_tokens(
        after=Position(found[-1].created_at, found[-1].id) if found else None, limit=limit
    ):
        holds(len(page) <= limit, "a page of tokens", expected=f"at most {limit}", seen=len(page))
        found += page
    return found


def _microseconds(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
