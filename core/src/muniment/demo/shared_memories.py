"""The first act: documents that people and agents share, step by step, and what must come of each step.

Only tool calls of an MCP client are used; nothing looks behind the server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muniment.demo import documents, texts
from muniment.demo.clients import Answer, Person, Refused
from muniment.demo.documents import Document, Library
from muniment.demo.report import Report
from muniment.demo.steps import check, refused
from muniment.engine.embeddings import UNAVAILABLE

PROJECT = "demo/handbook"
PAGE = 5
"""Results of a search, and the rank within which the text that was asked for must be."""
OVERHEAD_MAX = 700
"""Characters that a reply may have beside the content."""
WARM_UP = 180.0
"""Seconds that loading the model may take."""


@dataclass(frozen=True, slots=True)
class People:
    """Who takes part, each through a server of their own on the same data."""

    owner: Person
    colleague: Person
    guest: Person


class SharedMemories:
    """The steps in their order; later ones use what earlier ones stored."""

    def __init__(self, report: Report, people: People, library: Library, *, knows_meaning: bool) -> None:
        self._report = report
        self._people = people
        self._library = library
        self._knows_meaning = knows_meaning
        self._long = documents.long_document(library.documents)
        self._ids: dict[str, str] = {}

    async def play(self) -> None:
        """All steps. Raises Deviation or Refused at the first that does not do what it promises."""
        for step in (
            self._load,
            self._find_by_meaning,
            self._find_by_identifier,
            self._patch,
            self._patch_again,
            self._ambiguous,
            self._race,
            self._read_only,
            self._delete_and_restore,
            self._history,
            self._size,
        ):
            await step()

    # ------------------------------------------------------------ storing and finding

    async def _load(self) -> None:
        self._report.step("Load documents", "Each Markdown file becomes one memory, whole, in a shared project.")
        owner = self._people.owner
        await owner.call("project_identify", project=PROJECT)
        for group, access in (("editors", "rw"), ("readers", "ro")):
            await owner.call("project_share", project=PROJECT, group=group, access=access)
        self._report.did(f"alice registers {PROJECT}; group editors may write (rw), group readers may read (ro)")
        self._report.did("waiting until all three servers have loaded the model")
        await self._warm()
        stored = [*self._library.documents, texts.NOTE]
        if self._long not in stored:
            stored.append(self._long)
        for document in stored:
            receipt = (await owner.call("memory_write", content=document.text, tags=["demo"])).value
            self._ids[document.name] = receipt["id"]
            check(receipt["content_length"] == len(document.text), f"{document.name} was not stored whole")
        for document in stored:
            self._report.row(f"{len(document.text):>7,} characters  {document.name}")
        for name in self._library.left_out:
            self._report.saw(f"left out: {name}")
        self._report.kept(f"{len(stored)} memories stored, and ready to be found")

    async def _warm(self) -> None:
        """Wait until the model is loaded in every server: until then, answers come from words and say so.

        Raises Deviation with the server's reason where the model will not come.
        """
        deadline = asyncio.get_running_loop().time() + WARM_UP
        for person in (self._people.owner, self._people.colleague, self._people.guest):
            while reason := (await self._search(person, texts.NOTE_QUESTION))["degraded"]:
                check(UNAVAILABLE not in reason, reason)
                check(asyncio.get_running_loop().time() < deadline, f"search still says: {reason}")
                await asyncio.sleep(0.5)

    async def _find_by_meaning(self) -> None:
        self._report.step("Search by meaning", "The question shares no telling word with the text that answers it.")
        if not self._knows_meaning:
            self._report.kept("left out; this embedder knows no meaning, the default one does")
            return
        page = await self._search(self._people.guest, texts.NOTE_QUESTION)
        self._report.did(f"bob asks: {texts.NOTE_QUESTION}")
        self._show_hits(page)
        check(self._is_first(page, texts.NOTE), "the note was not found first")
        self._report.saw(f"“{page['items'][0]['memory']['content']}”")
        self._report.kept("the note that answers it comes first")

    async def _find_by_identifier(self) -> None:
        self._report.step("Search by a code identifier", "Names from code are words of their own, and found whole.")
        chosen = documents.identifier(self._library.documents)
        if chosen is None:
            self._report.kept("left out; these documents hold no identifier that only one of them has")
            return
        name, holder = chosen
        page = await self._search(self._people.guest, name)
        self._report.did(f"bob searches: {name}")
        self._show_hits(page)
        holders = [hit for hit in page["items"] if name in hit["memory"]["content"]]
        ids = {hit["memory"]["id"] for hit in holders}
        check(self._ids[holder.name] in ids, f"{holder.name}, the document that has it, was not found")
        self._report.kept(f"{holder.name} has it, and is found")

    # ------------------------------------------------------------ editing

    async def _patch(self) -> None:
        self._report.step(
            "Patch deep inside a long document",
            "A small edit is a small call: one fragment that occurs once is replaced, the rest is not resent.",
        )
        line = documents.deep_line(self._long.text)
        offset = self._long.text.index(line)
        answer = await self._edit(self._people.owner, old=line, new=f"{line}\n\n{texts.NEWS}")
        self._report.did(f"alice adds a paragraph {offset:,} characters into {self._long.name}: “{texts.NEWS}”")
        self._report.saw(
            f"sent {answer.sent:,} characters, got {answer.received:,} back; "
            f"the document has {answer.value['content_length']:,}"
        )
        added = answer.value["content_length"] - len(self._long.text)
        check(added == len(texts.NEWS) + 2, "something else in the document changed")
        await self._finds(texts.NEWS_NAME, texts.NEWS_QUESTION, texts.NEWS)
        self._report.kept("the new text is found, by its name" + " and by its meaning" * self._knows_meaning)

    async def _patch_again(self) -> None:
        self._report.step("Replace it, and what was there is gone", "No ranker remembers text that was removed.")
        await self._edit(self._people.owner, old=texts.NEWS, new=texts.LATER)
        self._report.did(f"alice replaces it by: “{texts.LATER}”")
        await self._finds(texts.LATER_NAME, texts.LATER_QUESTION, texts.LATER)
        for question in (texts.NEWS_NAME, texts.NEWS_QUESTION):
            page = await self._search(self._people.guest, question)
            with_old = sum(texts.NEWS_NAME in hit["memory"]["content"] for hit in page["items"])
            self._report.saw(f"search “{question}”: {with_old} of {len(page['items'])} results hold the old text")
            check(with_old == 0, "the old text is still found")
        self._report.kept("the new text is found, the old one is gone")

    async def _ambiguous(self) -> None:
        self._report.step("Refuse an ambiguous patch", "An edit that could mean several places changes none of them.")
        before = await self._read(self._people.owner, self._long)
        word, count = documents.common_word(before["content"])
        refusal = await refused(self._edit(self._people.owner, old=word, new="?"), "patch_ambiguous")
        self._report.did(f"alice tries to replace “{word}”")
        self._report.saw(f"{refusal.code}: {refusal}")
        check(refusal.details.get("count") == count, f"the count is not {count}")
        after = await self._read(self._people.owner, self._long)
        check(after == before, "the refused patch changed something")
        self._report.kept(f"refused with the count, {count}; nothing changed")

    async def _race(self) -> None:
        self._report.step("Two editors, one version", "Whoever is late is told so, instead of overwriting the other.")
        note = await self._read(self._people.owner, texts.NOTE)
        racers = (self._people.owner, self._people.colleague)
        outcomes = await asyncio.gather(
            *(
                one.call(
                    "memory_update",
                    id=note["id"],
                    version=note["version"],
                    content=f"{note['content']} ({one.name})",
                )
                for one in racers
            ),
            return_exceptions=True,
        )
        self._report.did(
            f"alice and carol both update version {note['version']} of {texts.NOTE.name}, at the same moment, "
            f"through different servers"
        )
        won = [one.name for one, outcome in zip(racers, outcomes, strict=True) if isinstance(outcome, Answer)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        check(len(won) == 1 and len(lost) == 1, f"{len(won)} won and {len(lost)} were refused")
        self._report.saw(f"{won[0]} won; the other got {lost[0].code}: {lost[0]}")
        check(lost[0].code == "version_conflict", f"the loser got {lost[0].code}")
        now = await self._read(self._people.guest, texts.NOTE)
        check(now["content"].endswith(f"({won[0]})"), "the stored text is not the winner's")
        check(now["version"] == note["version"] + 1, f"the version is {now['version']}")
        self._report.kept("exactly one was applied, and the other knows which version to read")

    # ------------------------------------------------------------ access and keeping

    async def _read_only(self) -> None:
        self._report.step("A reader reads, and only that", "Access is decided once, in the core, for every operation.")
        before = await self._read(self._people.guest, texts.NOTE)
        self._report.did(
            f"bob reads {texts.NOTE.name}: {len(before['content'])} characters, version {before['version']}"
        )
        edit = {"id": before["id"], "old_string": "Decision", "new_string": "Rumour"}
        for verb, tool, arguments in (
            ("patch", "memory_patch", edit),
            ("delete", "memory_delete", {"id": before["id"]}),
        ):
            refusal = await refused(self._people.guest.call(tool, **arguments), "access_denied")
            self._report.did(f"bob tries to {verb} it")
            self._report.saw(f"{refusal.code}: {refusal}")
        after = await self._read(self._people.owner, texts.NOTE)
        check(after == before, "a refused call changed something")
        self._report.kept("read, and refused twice with access_denied; nothing changed")

    async def _delete_and_restore(self) -> None:
        self._report.step("Delete and restore", "What is deleted is gone from every read, and can come back whole.")
        owner, before = self._people.owner, await self._read(self._people.owner, texts.NOTE)
        await owner.call("memory_delete", id=before["id"])
        self._report.did(f"alice deletes {texts.NOTE.name}")
        refusal = await refused(owner.call("memory_get", id=before["id"]), "not_found")
        self._report.saw(f"reading it: {refusal.code}")
        page = await self._search(owner, texts.NOTE.text[:60])
        check(all(hit["memory"]["id"] != before["id"] for hit in page["items"]), "search still finds it")
        listed = (await owner.call("memory_list", deleted=True)).value["items"]
        check(before["id"] in [item["id"] for item in listed], "it is not listed as deleted")
        await owner.call("memory_restore", id=before["id"])
        self._report.did("alice restores it")
        after = await self._read(owner, texts.NOTE)
        check(after["content"] == before["content"], "the content came back changed")
        page = await self._search(owner, texts.NOTE.text[:60])
        check(self._is_first(page, texts.NOTE), "search does not find it again")
        self._report.kept(f"whole again at version {after['version']}, and found")

    async def _history(self) -> None:
        self._report.step("The audit trail", "Who changed what, when and through what; never the text itself.")
        page = (await self._people.owner.call("memory_history", id=self._ids[texts.NOTE.name])).value
        for entry in page["items"]:
            self._report.row(
                f"version {entry['version']}  {entry['action']:<15} by {entry['actor']} over {entry['surface']}, "
                f"changed {', '.join(entry['changed']) or 'nothing'}, {entry['at'][:19]}"
            )
        actions = [entry["action"] for entry in page["items"]]
        expected = ["memory.restore", "memory.delete", "memory.update", "memory.write"]
        check(actions == expected, f"the trail says {', '.join(actions)}")
        check("token" not in json.dumps(page), "the trail holds text of the memory")
        self._report.kept("one entry for each change that was applied, none for those that were refused")

    async def _size(self) -> None:
        self._report.step("The size of a read", "A reply is the memory and little else: no vector, no index.")
        for document in (texts.NOTE, self._long):
            answer = await self._people.guest.call("memory_get", id=self._ids[document.name])
            content = answer.value["content"]
            escapes = len(json.dumps(content, ensure_ascii=False)) - 2 - len(content)
            beside = answer.received - escapes - len(content)
            self._report.row(
                f"{len(content):>7,} characters of content, {answer.received:,} in the reply: "
                f"{beside} beside the content, {escapes} for escapes"
            )
            check(beside <= OVERHEAD_MAX, f"{beside} characters beside the content, more than {OVERHEAD_MAX}")
        self._report.kept(f"at most {OVERHEAD_MAX} characters beside the content")

    # ------------------------------------------------------------ what steps share

    async def _search(self, person: Person, query: str) -> Mapping[str, Any]:
        return (await person.call("memory_search", query=query, limit=PAGE)).value

    async def _read(self, person: Person, document: Document) -> Mapping[str, Any]:
        return (await person.call("memory_get", id=self._ids[document.name])).value

    def _is_first(self, page: Mapping[str, Any], document: Document) -> bool:
        return [hit["memory"]["id"] for hit in page["items"][:1]] == [self._ids[document.name]]

    async def _edit(self, person: Person, *, old: str, new: str) -> Answer:
        return await person.call("memory_patch", id=self._ids[self._long.name], old_string=old, new_string=new)

    async def _finds(self, name: str, question: str, text: str) -> None:
        """That the long document is found by a name in ``text``, and by a question about it."""
        for asked, ranker in ((name, "words"), (question, "meaning")):
            if ranker == "meaning" and not self._knows_meaning:
                continue
            page = await self._search(self._people.guest, asked)
            self._report.did(f"bob searches: {asked}")
            self._show_hits(page)
            found = [hit for hit in page["items"] if hit["memory"]["id"] == self._ids[self._long.name]]
            check(bool(found) and text in found[0]["memory"]["content"], "the new text is not found")
            rank = found[0][ranker]
            check(rank is not None and rank["rank"] <= PAGE, f"it is not among the {PAGE} best by {ranker}")

    def _show_hits(self, page: Mapping[str, Any]) -> None:
        names = {id_: name for name, id_ in self._ids.items()}
        for hit in page["items"][:3]:
            ranks = ", ".join(f"{ranker} {hit[ranker]['rank']}" for ranker in ("meaning", "words") if hit[ranker])
            self._report.row(f"{hit['score']:.2f}  {names.get(hit['memory']['id'], '?')}  (rank by {ranks})")
