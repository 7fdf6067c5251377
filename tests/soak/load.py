"""The callers of a soak: they write, edit, remove and find memories, append exchanges, enqueue events, keep notes.

Each goes on until it is told that time is up, and ends only once it is certain what became of its last request. What is
told of a memory is noted in ``told``; a refusal or a read that contradicts it is Broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from tests.abuse.estate import Broken
from tests.soak.caller import PAUSE, Answer, Caller, Lost
from tests.soak.told import Memory, Notes, Told

END = "\nEnd."
FILLER = "the quick brown fox jumps over the lazy dog and finds nothing there that it had not seen before. "
LENGTH = 40
"""The most filler sentences that a memory begins with, which then is several passages."""
SHARED = 3
"""Memories of each user that all callers of that user edit."""
MARKS = 2_000
"""Lines that are added to such a memory at most, which keep it below the limit of a content."""
REST = 0.02
"""Seconds between two requests of a caller."""


class Writer:
    """Memories of a user: its own, which nobody else edits, and those that the user's other callers edit too."""

    def __init__(self, user: str, caller: Caller, told: Told, random: Random, shared: list[Memory]) -> None:
        self._user = user
        self._caller = caller
        self._told = told
        self._random = random
        self._shared = shared
        self._own: list[Memory] = []
        self._replays: list[tuple[str, Answer, Answer]] = []

    async def run(self, over: Callable[[], bool]) -> None:
        """Until time is up."""
        doing: list[tuple[int, Callable[[], Awaitable[object]]]] = [
            (3, self.write),
            (3, self._patch),
            (3, self._mark),
            (1, self._update),
            (1, self._delete_or_restore),
            (2, self._search),
            (2, self._get),
            (1, self._replay),
        ]
        await self.write()
        while not over():
            (chosen,) = self._random.choices([one for _, one in doing], [weight for weight, _ in doing])
            await chosen()
            await asyncio.sleep(self._random.uniform(0, 2 * REST))

    async def write(self) -> Memory:
        """A new memory of its own."""
        word = self._word()
        content = f"Memory {word}.\n{FILLER * self._random.randint(0, LENGTH)}{END}"
        key = f"write {word}"
        sent = {"content": content, "tags": [self._random.choice(("red", "blue"))], "idempotency_key": key}
        receipt = await self._keyed("memory.write", sent)
        if receipt["id"] in self._told.memories or receipt["version"] != 1:
            raise Broken(f"a write of {key} was answered by {receipt}")
        memory = Memory(self._user, receipt["id"], content, word)
        self._told.memories[memory.id] = memory
        self._own.append(memory)
        return memory

    async def _patch(self) -> None:
        memory = self._random.choice(self._own)
        if memory.deleted:
            return
        line = self._word()
        await self._add(memory, line)
        memory.content = memory.content.replace(END, f"\n{line}{END}")

    async def _mark(self) -> None:
        """Whoever loses against another caller again and again is told so, and has done nothing."""
        memory, line = self._random.choice(self._shared), self._word()
        if len(memory.marks) >= MARKS:
            return
        await self._add(memory, line)
        memory.marks.add(line)

    async def _add(self, memory: Memory, line: str) -> None:
        sent = {"id": memory.id, "old_string": END, "new_string": f"\n{line}{END}", "idempotency_key": f"patch {line}"}
        await self._keyed("memory.patch", sent)
        memory.actions.append("memory.patch")

    async def _update(self) -> None:
        memory = self._random.choice(self._own)
        if memory.deleted:
            return
        content = f"Memory {memory.word}, written anew.\n{FILLER * self._random.randint(0, LENGTH)}{END}"
        await self._change(memory, "memory.update", content=content)
        memory.content = content

    async def _delete_or_restore(self) -> None:
        memory = self._random.choice(self._own)
        await self._change(memory, "memory.restore" if memory.deleted else "memory.delete")
        memory.deleted = not memory.deleted

    async def _change(self, memory: Memory, operation: str, **payload: Any) -> None:
        """What has no key: sent by its version, until there is a receipt, or an entry in the trail where that is lost.

        What a killed server had begun may be done later than the trail is read, so a refusal then is no end.
        """
        unsure = False
        while True:
            try:
                answer = await self._caller.asked(operation, id=memory.id, version=memory.version, **payload)
                if "code" not in answer:
                    break
                if not unsure:
                    raise Broken(f"{operation} of {memory.id} at version {memory.version} was refused: {answer}")
            except Lost:
                unsure = True
            page = await self._caller.certain("memory.history", id=memory.id, limit=1)
            newest = page["items"][0]
            if newest["version"] == memory.version + 1 and newest["action"] == operation:
                break
            if newest["version"] != memory.version:
                raise Broken(f"{memory.id} at version {memory.version} went on without its editor: {newest}")
            await asyncio.sleep(PAUSE)
        memory.actions.append(operation)

    async def _search(self) -> None:
        memory = self._random.choice(self._own)
        page = await self._caller.certain("memory.search", query=memory.word, limit=5)
        found = [hit["memory"]["id"] for hit in page["items"] if hit["words"]]
        if found != ([] if memory.deleted else [memory.id]):
            raise Broken(f"{memory} is searched by its word, and {found} is found")
        self._told.found += not memory.deleted

    async def _get(self) -> None:
        memory = self._random.choice(self._own)
        answer = await self._caller.certain("memory.get", id=memory.id) if not memory.deleted else {}
        if answer and (answer["content"], answer["version"]) != (memory.content, memory.version):
            raise Broken(f"{memory.id} should have version {memory.version}, and is {answer}")

    async def _replay(self) -> None:
        operation, sent, receipt = self._random.choice(self._replays)
        again = await self._caller.certain(operation, **sent)
        if again != receipt:
            raise Broken(f"{operation} {sent['idempotency_key']} was answered by {receipt} and then by {again}")
        self._told.replayed += 1

    async def _keyed(self, operation: str, sent: Answer) -> Answer:
        """The receipt; who loses a race for a version sends the same again."""
        while True:
            try:
                receipt = await self._caller.asked(operation, **sent)
            except Lost:
                await asyncio.sleep(PAUSE)
                continue
            if receipt.get("code") == "version_conflict":
                continue
            if "code" in receipt:
                raise Broken(f"{operation} {sent} was refused: {receipt}")
            self._told.keyed += 1
            self._replays = [*self._replays[-50:], (operation, sent, receipt)]
            return receipt

    def _word(self) -> str:
        return "q" + "".join(self._random.choices("bcdfghjklmnpqrstvwxz", k=12))


class Platform:
    """Records exchanges and enqueues events."""

    def __init__(self, caller: Caller, told: Told, random: Random, agents: list[str]) -> None:
        self._caller = caller
        self._told = told
        self._random = random
        self._agents = agents

    async def run(self, over: Callable[[], bool]) -> None:
        """Until time is up."""
        turn = 0
        while not over():
            turn += 1
            if turn % 3 == 0:
                await self._append(f"exchange {turn}")
            else:
                agent = self._random.choice(self._agents)
                sent = {"agent": named(agent), "payload": {"turn": turn}, "idempotency_key": f"event {turn}"}
                receipt = await self._caller.certain("event.enqueue", **sent)
                if receipt["id"] in self._told.events:
                    raise Broken(f"{receipt['id']} is the receipt of two events")
                self._told.events[receipt["id"]] = agent
                self._told.keyed += 1
            await asyncio.sleep(self._random.uniform(0, 0.2))

    async def _append(self, key: str) -> None:
        sent: Answer = {"surface_pod_id": "pod", "dedupe_key": key, "idempotency_key": key}
        if self._random.random() < 0.5:
            pair = self._random.sample(self._agents, 2)
            sent |= {"peers": [named(one) for one in pair], "messages": [key]}
            receipt = await self._caller.certain("exchange.dm_concluded", **sent)
        else:
            sent |= {"assignee": named(self._random.choice(self._agents)), "title": key, "result": "ok"}
            receipt = await self._caller.certain("exchange.task_completed", **sent)
        self._told.keyed += 1
        for one in receipt["recipients"]:
            agent = f"{one['agent']['name']}/{one['agent']['instance']}"
            self._told.revisions.setdefault(agent, []).append(one["revision"])
            self._told.takeaways[agent, receipt["takeaway"]] = one["revision"]

    async def requeue_dead(self) -> int:
        """How many events had been delivered too often; they wait again."""
        requeued = 0
        for agent in self._agents:
            page = await self._caller.certain("event.dead", agent=named(agent), limit=50)
            if ids := [one["id"] for one in page["items"]]:
                await self._caller.certain("event.requeue", agent=named(agent), ids=ids)
                requeued += len(ids)
        return requeued


class Scribe:
    """An agent's notes of itself, by version."""

    def __init__(self, agent: str, caller: Caller, told: Told, random: Random) -> None:
        self._caller = caller
        self._random = random
        self._notes = told.notes.setdefault(agent, Notes())

    async def run(self, over: Callable[[], bool]) -> None:
        """Until time is up."""
        notes = self._notes
        while not over():
            if self._random.random() < 0.5:
                value = f"note {notes.saves} {self._random.random()}"
                await self._change("section.save", notes.saves, section="long_term", value=value)
                notes.long_term = value
                notes.saves += 1
            else:
                line = f"cycle {notes.logged}"
                await self._change("section.log_cycle", notes.logged, text=line)
                notes.cycles.append(line)
                notes.logged += 1
            await asyncio.sleep(self._random.uniform(0, 0.3))

    async def _change(self, operation: str, version: int, **payload: Any) -> None:
        section = payload.get("section", "cycles")
        unsure = False
        while True:
            try:
                answer = await self._caller.asked(operation, version=version, **payload)
                if "code" not in answer:
                    return
                if not unsure:
                    raise Broken(f"{operation} at version {version} was refused: {answer}")
            except Lost:
                unsure = True
            view = await self._caller.certain("section.read", sections=[section])
            now = view["sections"][section]["version"]
            if now == version + 1:
                return
            if now != version:
                raise Broken(f"{section} at version {version} went on to {now} without its agent")
            await asyncio.sleep(PAUSE)


def named(agent: str) -> dict[str, str]:
    """An agent as an input names it."""
    name, _, instance = agent.rpartition("/")
    return {"name": name, "instance": instance}
