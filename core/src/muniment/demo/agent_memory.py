"""The second act: what an agent did in one room reaches it in another, and nobody else.

Two agent instances and the platform that they run on, each through a server of their own on the same data. Only tool
calls of an MCP client are used.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muniment.demo.clients import Person
from muniment.demo.report import Report
from muniment.demo.steps import check, refused

INSTANCE = "1"
DESIGN, SUPPORT = ("pod-design", "Design room"), ("pod-support", "Support room")
AGREED = "Agreed: the release moves to Thursday, and support answers nobody before noon."
QUESTION = "Anything new for our customers?"
MESSAGES = ("Shall we move it?", AGREED, "NO_REPLY")
"""What the sender said, the last one last; an agent that has nothing to say sends NO_REPLY."""
TASK, RESULT = "Write the release notes", "merged"
HANDBOOK = "How we name releases: the year, a dot, and the week."
DIARY = "Bert is quick to agree; ask twice."
LEASE = 1
"""Seconds; the shortest lease, for a worker that dies."""
PATIENCE = 30.0
"""Seconds until an event must be claimable again."""


@dataclass(frozen=True, slots=True)
class Agents:
    """Who takes part: the platform, two agents, and a person who is neither."""

    platform: Person
    ada: Person
    bert: Person
    owner: Person


class AgentMemory:
    """The steps in their order; later ones use what earlier ones recorded."""

    def __init__(self, report: Report, agents: Agents) -> None:
        self._report = report
        self._agents = agents

    async def play(self) -> None:
        """All steps. Raises Deviation or Refused at the first that does not do what it promises."""
        delivery = await self._next_event()
        await self._nobody_else()
        await self._acknowledge(delivery)
        await self._lost_worker()
        await self._open_a_section()

    async def _next_event(self) -> Mapping[str, Any]:
        self._report.step(
            "What happened elsewhere rides in the next event",
            "An agent in one room does not know what it agreed in another; asking it to write that down fails when it "
            "matters. So the platform records it, and it comes with what the agent reads anyway.",
        )
        platform = self._agents.platform
        for agent in (self._agents.ada, self._agents.bert):
            await platform.call("agent_register", agent=ref(agent), pods=[DESIGN[0]])
        recorded = await platform.call(
            "exchange_dm_concluded",
            peers=[ref(self._agents.ada), ref(self._agents.bert)],
            messages=list(MESSAGES),
            dedupe_key="dm-1",
            surface_pod_id=DESIGN[0],
            surface_label=DESIGN[1],
        )
        self._report.did(f"ada and bert end a direct conversation in the {DESIGN[1]}; the platform records that")
        check(len(recorded.value["recipients"]) == 2, "it was not recorded for both")
        await self._enqueue(QUESTION)
        self._report.did(f"a question for ada arrives in the {SUPPORT[1]}; ada claims it")
        delivery = await self._claimed()
        payload = delivery["payload"]
        self._show(payload["memoryDigest"])
        cue, _, content = payload["content"].partition("\n")
        self._report.saw(f"content: {cue} ⏎ {content}")
        check(content == QUESTION and cue.startswith("[memory: 1 "), "the content is another one")
        check([entry["takeaway"] for entry in payload["memoryDigest"]] == [AGREED], "the takeaway is another one")
        check(payload["memoryDigest"][0]["peers"] == [f"bert/{INSTANCE}"], "its peer is not bert")
        self._report.kept("the last thing that was said, and not NO_REPLY, is in the payload as memoryDigest")
        return delivery

    async def _nobody_else(self) -> None:
        self._report.step(
            "The record is private, and nobody can write it",
            "What was said in a direct conversation is for those who had it, not even for an operator's viewer.",
        )
        ada, bert = self._agents.ada, self._agents.bert
        own = (await bert.call("section_read", sections=["system_exchanges"])).value["sections"]["system_exchanges"]
        peers = [entry["peers"] for entry in own["value"]]
        self._report.did(f"bert reads its own section: {len(peers)} entry, with {peers[0][0]}")
        check(peers == [[f"ada/{INSTANCE}"]], "bert's section is not its own")
        shared = (await bert.call("section_read_shared", agent=ref(ada))).value["sections"]
        self._report.did(f"bert reads what ada shares: {shared}")
        check(shared == {}, "bert can read something of ada's")
        forged = [{"takeaway": "Bert was right."}]
        forgery: dict[str, Any] = {"section": "system_exchanges", "value": forged}
        owner = self._agents.owner
        for who, tool, arguments, what, code in (
            (bert, "section_save", forgery, "bert tries to write the record", "section_read_only"),
            (owner, "section_read", {}, "alice, who is no agent, tries to read one", "access_denied"),
            (bert, "exchange_loop_tripped", {}, "bert tries to record an exchange", "access_denied"),
        ):
            refusal = await refused(who.call(tool, **arguments), code)
            self._report.did(what)
            self._report.saw(f"{refusal.code}: {refusal}")
        self._report.kept("each agent has its own entry, reads only that, and writes none")

    async def _acknowledge(self, delivery: Mapping[str, Any]) -> None:
        self._report.step(
            "Acknowledge twice, and it counts once",
            "An answer that was lost is asked for again; a retry must not mark as seen what nobody has read.",
        )
        ada = self._agents.ada
        check(await self._last_seen() == 0, "it counts as seen before it was acknowledged")
        outcomes = [await self._ack(delivery) for _ in range(2)]
        self._report.did(f"ada acknowledges the event, and once more: {', then '.join(outcomes)}")
        check(outcomes == ["acknowledged", "already_acked"], "those are other outcomes")
        check(await self._last_seen() == 1, f"last seen is {await self._last_seen()}, not 1")
        await self._enqueue("And now?")
        following = await self._claimed()
        self._report.did(f"the next event of {ada.name} comes with {sorted(following['payload'])}")
        told = "memoryDigest" in following["payload"] or following["payload"]["content"] != "And now?"
        check(not told, "what was seen is told again")
        check(await self._ack(following) == "acknowledged", "the next event was not acknowledged")
        self._report.kept("seen once; the next event has nothing to tell")

    async def _lost_worker(self) -> None:
        self._report.step(
            "A worker that dies loses nothing",
            "A claim is a lease. When it runs out, the event is offered again, and the old receipt is worth nothing.",
        )
        await self._agents.platform.call(
            "exchange_task_completed",
            assignee=ref(self._agents.ada),
            title=TASK,
            result=RESULT,
            dedupe_key="task-1",
            surface_pod_id=DESIGN[0],
            surface_label=DESIGN[1],
        )
        await self._enqueue("Please tell the customers.")
        lost = await self._claimed(lease_seconds=LEASE)
        self._report.did(f"ada claims an event for {LEASE} second, and is heard of no more")
        again = await self._redelivered()
        self._report.saw(f"offered again, attempt {again['attempts']}, with the same news:")
        self._show(again["payload"]["memoryDigest"])
        check((again["id"], again["attempts"]) == (lost["id"], 2), "another event was offered")
        check(again["token"] != lost["token"], "the receipt is the old one")
        same = again["payload"]["memoryDigest"] == lost["payload"]["memoryDigest"]
        check(same and again["payload"]["memoryDigest"][0]["takeaway"] == f"{TASK} → {RESULT}", "the news is another")
        outcome, seen = await self._ack(lost), await self._last_seen()
        self._report.did(f"the old worker wakes up and acknowledges: {outcome}")
        check((outcome, seen) == ("stale_receipt", 1), f"the old receipt did something; last seen is {seen}")
        outcome, seen = await self._ack(again), await self._last_seen()
        self._report.did(f"the new one acknowledges: {outcome}")
        check((outcome, seen) == ("acknowledged", 2), f"the new receipt did not count; last seen is {seen}")
        self._report.kept("delivered again with its news; only the latest receipt counts")

    async def _open_a_section(self) -> None:
        self._report.step(
            "What an agent opens, others read, and no more", "Sections are private until their agent opens them."
        )
        ada, bert = self._agents.ada, self._agents.bert
        await ada.call("section_save", section="soul", value=DIARY)
        first = (await ada.call("section_save", section="shared", value=HANDBOOK)).value
        self._report.did("ada saves two sections, soul and shared, and opens none")
        check(await self._shared_by_ada() == {}, "bert reads what was not opened")
        await ada.call(
            "section_save", section="shared", value=HANDBOOK, visibility="pod", version=first["versions"]["shared"]
        )
        self._report.did(f"ada opens shared to its pod; {bert.name}, which is in the same pod, reads what ada shares")
        shown = await self._shared_by_ada()
        for name, value in shown.items():
            self._report.row(f"{name}: {value}")
        check(shown == {"shared": HANDBOOK}, "that is not exactly what was opened")
        self._report.kept("exactly the section that was opened")

    # ------------------------------------------------------------ what steps share

    async def _enqueue(self, content: str) -> None:
        payload = {"pod": SUPPORT[0], "content": content}
        await self._agents.platform.call("event_enqueue", agent=ref(self._agents.ada), payload=payload)

    async def _claim(self, **options: Any) -> list[Mapping[str, Any]]:
        return (await self._agents.ada.call("event_claim", **options)).value["items"]

    async def _claimed(self, **options: Any) -> Mapping[str, Any]:
        items = await self._claim(**options)
        check(len(items) == 1, f"{len(items)} events were delivered")
        return items[0]

    async def _redelivered(self) -> Mapping[str, Any]:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not (items := await self._claim()):
            check(asyncio.get_running_loop().time() < deadline, "the event was not offered again")
            await asyncio.sleep(0.1)
        return items[0]

    async def _ack(self, delivery: Mapping[str, Any]) -> str:
        answer = await self._agents.ada.call("event_ack", id=delivery["id"], token=delivery["token"])
        return str(answer.value["outcome"])

    async def _last_seen(self) -> int:
        """Up to which revision ada has seen; reading another section than the exchanges marks nothing."""
        return int((await self._agents.ada.call("section_read", sections=["soul"])).value["last_seen_revision"])

    async def _shared_by_ada(self) -> dict[str, Any]:
        answer = await self._agents.bert.call("section_read_shared", agent=ref(self._agents.ada))
        return {name: section["value"] for name, section in answer.value["sections"].items()}

    def _show(self, entries: list[Mapping[str, Any]]) -> None:
        for entry in entries:
            shown = {name: value for name, value in entry.items() if name != "ts"}
            self._report.saw(json.dumps(shown, ensure_ascii=False))


def ref(agent: Person) -> dict[str, str]:
    """An agent instance as an operation's input names it."""
    return {"name": agent.name, "instance": INSTANCE}
