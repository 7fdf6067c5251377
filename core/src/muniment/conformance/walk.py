"""Runs random sequences of steps against a subject beside the model, and shrinks the first that differs.

Each sequence has an agent of its own, so thousands share one subject, and a shorter list of steps can be tried at any
time. Owns the budget; what is true is ``agent_model``'s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from muniment import limits
from muniment.conformance.agent_model import Model, ModelEvent, Step, said_of_memory, steps
from muniment.conformance.agents_estate import Entry, Instance, instance
from muniment.conformance.invariant import Broken
from muniment.conformance.target import Refused
from muniment.conformance.world import LONG_LEASE, World, same

SEQUENCES = 100
LENGTH = 24
SECONDS = 4.0
"""The budget: so many sequences of so many steps, or as many as there is time for, and never fewer than ``LEAST``."""
LEAST = 12
SHRINKINGS = 150
"""How many shorter lists are tried."""
_LAST_ROUNDS = 4
_BURST = (1, 2, 3, 9, 30)
_LETTERS = "xü語\U0001d54f"


@dataclass
class Walker:
    """One sequence under way: an agent of the subject, and the model of it.

    What was carried, acknowledged and read is noted from the answers alone, apart from the model.
    """

    on: Instance
    model: Model = field(default_factory=Model)
    carried: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    acknowledged: set[int] = field(default_factory=set[int])
    read_by_agent: set[int] = field(default_factory=set[int])

    async def take(self, step: Step) -> None:
        """Do one step on both, and compare. Broken where they differ."""
        await getattr(self, f"_{step.name}")(step.first, step.second)
        revision, last_seen = await self.on.numbers()
        same("revision and last seen", (revision, last_seen), (self.model.revision, self.model.last_seen))
        unexplained = self.model.unexplained(last_seen, self.acknowledged, self.read_by_agent)
        same("what counts as seen and was not delivered, read or evicted", unexplained, [])

    async def finish(self) -> None:
        """Work on until nothing is left: every event is acknowledged, and every entry seen or evicted."""
        for _ in range(_LAST_ROUNDS):
            for step in (Step("enqueue"), Step("lose"), Step("requeue"), Step("claim", 19), Step("ack_all")):
                await self.take(step)
        while any(not event.acked for event in self.model.events):
            for step in (Step("claim", 19), Step("ack_all")):
                await self.take(step)
        await self.take(Step("read", limits.EXCHANGES_KEPT - 1))
        same("what was seen in the end", self.model.last_seen, self.model.revision)

    async def _append(self, burst: int, size: int) -> None:
        random = Random(size)
        for _ in range(_BURST[burst % len(_BURST)]):
            number = self.model.revision + 1
            title, label, peers = _small(number) if size % 2 else _large(number, random)
            entry: Entry = await self.on.record(title, f"task {number}", label=label, peers=peers)
            same("the revision of an entry", entry["revision"], number)
            self.model.entries.append(entry)

    async def _enqueue(self, *_: int) -> None:
        self.model.events.append(ModelEvent(await self.on.enqueue(content="work")))

    async def _claim(self, limit: int, _: int) -> None:
        said, entries = self.model.digest()
        wanted = self.model.claim(limit % limits.CLAIM_MAX + 1)
        items = await self.on.claim(limit % limits.CLAIM_MAX + 1, LONG_LEASE)
        same("the events of a claim", [item["id"] for item in items], [event.id for event in wanted])
        for item, event in zip(items, wanted, strict=True):
            same("the attempts of a delivery", item["attempts"], event.attempts)
            same("what a delivery says", said_of_memory(item["payload"]), said)
            same("whether the token was used before", item["token"] in event.tokens, False)
            event.tokens.append(item["token"])
            self.carried[item["token"]] = {entry["revision"] for entry in entries}

    async def _ack(self, which: int, _: int) -> None:
        delivered = [event for event in self.model.events if event.tokens]
        if delivered:
            event = delivered[which % len(delivered)]
            await self._acknowledge(event, event.tokens[-1])

    async def _ack_all(self, *_: int) -> None:
        for event in [event for event in self.model.events if event.tokens and not event.acked]:
            await self._acknowledge(event, event.tokens[-1])

    async def _old(self, which: int, token: int) -> None:
        again = [event for event in self.model.events if len(event.tokens) > 1]
        if again:
            event = again[which % len(again)]
            await self._acknowledge(event, event.tokens[token % (len(event.tokens) - 1)])

    async def _acknowledge(self, event: ModelEvent, token: str) -> None:
        outcome = await self.on.ack({"id": event.id}, token)
        if outcome == "acknowledged":
            self.acknowledged |= self.carried[token]
        same("the outcome of an acknowledgement", outcome, self.model.ack(event, token))

    async def _extend(self, which: int, _: int) -> None:
        leased = [event for event in self.model.events if event.leased and not event.acked]
        if leased:
            event = leased[which % len(leased)]
            token, lease = event.tokens[-1], LONG_LEASE
            answer = await self.on.own("event.extend", id=event.id, token=token, lease_seconds=lease)
            same("the outcome of an extension", answer["outcome"], "acknowledged")

    async def _lose(self, *_: int) -> None:
        if self.on.world.can_age and any(event.leased for event in self.model.events):
            await self.on.world.lose_leases()
            self.model.lose()

    async def _exhaust(self, limit: int, then: int) -> None:
        """One worker after the other dies with what it has claimed, until there is nothing to claim."""
        for _ in range(limits.ATTEMPTS_MAX if self.on.world.can_age else 1):
            await self._claim(limit, 0)
            await self._lose()
        if then % 2:
            await self._requeue(0, then)

    async def _read(self, count: int, _: int) -> None:
        count = count % limits.EXCHANGES_KEPT + 1
        view = await self.on.read("system_exchanges", exchanges=count)
        read = [entry["revision"] for entry in view["system_exchanges"]["value"]]
        held = [entry["revision"] for entry in self.model.stored[-count:]]
        same("the exchanges that are read", read, list(reversed(held)))
        self.read_by_agent |= set(read)
        self.model.read(count)

    async def _requeue(self, which: int, late: int) -> None:
        """The dead are requeued, and perhaps the last worker of one of them comes late."""
        dead = [item["id"] for item in (await self.on.platform("event.dead", agent=self.on.ref, limit=200))["items"]]
        same("the dead events", sorted(dead), sorted(event.id for event in self.model.events if event.dead))
        if dead:
            answer = await self.on.platform("event.requeue", agent=self.on.ref, ids=dead)
            same("the requeued events", sorted(answer["requeued"]), sorted(self.model.requeue()))
            if late % 3:
                await self._ack(which, late)

    async def _reopen(self, *_: int) -> None:
        own = await self.on.world.reopen(self.on.own)
        self.on = replace(self.on, own=own, platform=self.on.platform.at(own.client))

    async def _crash(self, which: int, ticks: int) -> None:
        """A worker is killed on the way of a claim: it is delivered to nobody, or it is not; nothing in between."""
        claimed = asyncio.ensure_future(self.on.claim(1, LONG_LEASE))
        for _ in range(ticks % 12):
            await asyncio.sleep(0)
        claimed.cancel()
        await asyncio.wait([claimed])
        stored = {one.id: one for one in (await self.on.world.stored_agents()).events if one.agent == self.on.agent}
        expected = next((event for event in self.model.events if event.claimable), None)
        for event in self.model.events:
            happened = event is expected and stored[event.id].attempts == event.attempts + 1
            if happened:
                (event,) = self.model.claim(1)
                event.tokens.append(stored[event.id].token or "")
                self.carried[event.tokens[-1]] = {entry["revision"] for entry in self.model.digest()[1]}
            numbers = (stored[event.id].attempts, stored[event.id].acked, stored[event.id].delivered or 0)
            same("an event after a crash", numbers, (event.attempts, event.acked, event.delivered))


def _small(number: int) -> tuple[str, str, list[str]]:
    """Title, label and peers of an entry of which many fit in a digest."""
    return f"{number}", "", []


def _large(number: int, random: Random) -> tuple[str, str, list[str]]:
    """Title, label and peers of an entry of which a few fit, or one."""
    if random.random() < 0.2:
        letter, times, width, label = _LETTERS[-1], 400, limits.ID_MAX, limits.SURFACE_LABEL_MAX
    else:
        letter, times = random.choice(_LETTERS), random.choice((30, 150, 400))
        width, label = random.randrange(8, limits.ID_MAX), random.randrange(limits.SURFACE_LABEL_MAX)
    peers = [f"{peer}-{number}".ljust(width, "p") for peer in range(limits.PEERS_MAX)]
    return f"{number} {letter * times}", letter * label, peers


async def agree(world: World, extra: dict[str, int], rare: Sequence[str] = (), *, part: int = 1) -> None:
    """Compare the subject with the model over the budget. Broken with the shortest sequence found that differs.

    ``extra`` are further steps by weight; ``rare`` are those that one sequence of ten begins its second half with.
    ``part`` divides the budget.
    """
    if not world.can_age:
        world.notes.append("no lease is lost in random sequences: the target cannot age them")
    until = time.monotonic() + SECONDS / part
    seed = world.random.getrandbits(32)
    for number in range(SEQUENCES // part):
        if number >= LEAST and time.monotonic() > until:
            world.notes.append(f"{number} of {SEQUENCES // part} sequences in {SECONDS / part:g} s")
            return
        random = Random(f"{seed}:{number}")
        made = steps(random, LENGTH, extra)
        if number % 10 == 0:
            made[LENGTH // 2 : LENGTH // 2] = [Step(name, number, random.randrange(12)) for name in rare]
        different = await _differs(world, made, f"walk-{number}")
        if different is not None:
            shortest, different = await _shrunk(world, made, different, number)
            shown = " ".join(f"{step.name}({step.first},{step.second})" for step in shortest)
            what = f"{different.what}, after {len(shortest)} steps of sequence {number} of seed {seed}: {shown}"
            raise Broken(what, expected=different.expected, seen=different.seen)


async def _differs(world: World, made: Sequence[Step], name: str) -> Broken | None:
    """How the subject differs from the model over these steps, for an agent of this name; None where it does not."""
    walker = Walker(instance(world, name))
    try:
        for step in made:
            await walker.take(step)
        await walker.finish()
    except Broken as broken:
        return broken
    except Refused as refusal:
        return Broken("an operation of a sequence", expected="an answer", seen=refusal)
    return None


async def _shrunk(world: World, made: Sequence[Step], different: Broken, number: int) -> tuple[Sequence[Step], Broken]:
    """A shorter list of steps that still differs, by leaving out ever smaller parts (delta debugging)."""
    part, tried = max(1, len(made) // 2), 0
    while tried < SHRINKINGS:
        start = 0
        shortened = False
        while start < len(made) and tried < SHRINKINGS:
            shorter = [*made[:start], *made[start + part :]]
            tried += 1
            still = await _differs(world, shorter, f"walk-{number}-shorter-{tried}")
            if still is None:
                start += part
            else:
                made, different, shortened = shorter, still, True
        if part == 1 and not shortened:
            break
        part = max(1, part // 2)
    return made, different
