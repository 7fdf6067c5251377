"""MUT-06 to MUT-09: what a patch does, and what it refuses."""

from __future__ import annotations

from muniment.conformance.rules import STORAGE_AND_TRANSPORT, Rules
from muniment.conformance.world import World, same

RULES = Rules(STORAGE_AND_TRANSPORT)
LIMIT = 64_000


@RULES("MUT-06", "A patch with an absent fragment is patch_not_found, and nothing stored changes.")
async def absent(world: World) -> None:
    alice = world.caller("alice")
    text = "Alpha beta\r\ngamma caf\u00e9."
    memory = (await alice("memory.write", content=text))["id"]
    for fragment in ("delta", "alpha", "Alpha  beta", "Alpha beta\ngamma", "cafe\u0301", text + "."):
        async with world.unchanged(f"a patch of the absent {fragment!r}"):
            await alice.refused("patch_not_found", "memory.patch", id=memory, old_string=fragment, new_string="x")
    await alice("memory.patch", id=memory, old_string="beta\r\n", new_string="BETA ")
    same("the content after a patch", (await alice("memory.get", id=memory))["content"], "Alpha BETA gamma caf\u00e9.")


@RULES(
    "MUT-07",
    "A patch with more than one occurrence, overlapping ones counted, is patch_ambiguous with the count, and nothing "
    "stored changes.",
)
async def ambiguous(world: World) -> None:
    alice = world.caller("alice")
    cases = (
        ("aaa", "aa", 2),
        ("one two one", "one", 2),
        ("ababa", "aba", 2),
        ("x" * 50, "x", 50),
        ("né né né", "né", 3),
    )
    for text, fragment, count in cases:
        memory = (await alice("memory.write", content=text))["id"]
        async with world.unchanged(f"an ambiguous patch of {fragment!r}"):
            refusal = await alice.refused(
                "patch_ambiguous", "memory.patch", id=memory, old_string=fragment, new_string="b"
            )
            same(f"the count of {fragment!r} in {text!r}", refusal.details.get("count"), count)
    memory = (await alice("memory.write", content="aaab"))["id"]
    await alice("memory.patch", id=memory, old_string="aab", new_string="c")
    same("the content after an unambiguous patch", (await alice("memory.get", id=memory))["content"], "ac")


@RULES(
    "MUT-08",
    "A patch with exactly one occurrence replaces it and only it; an empty replacement deletes it.",
)
async def replaces(world: World) -> None:
    alice = world.caller("alice")
    cases = (
        ("start middle end", "start", "begin", "begin middle end"),
        ("start middle end", "end", "", "start middle "),
        ("start middle end", " middle", "", "start end"),
        ("a\\d+(b)$1.*", "\\d+(b)", "\\g<0>$&%s", "a\\g<0>$&%s$1.*"),
        ("日本語のテキスト", "のテ", "😀", "日本語😀キスト"),
        ("e\u0301 is one", "e", "a", "a\u0301 is onE".replace("E", "e")),
    )
    for text, old, new, expected in cases:
        unique = text.count(old) == 1
        fragment = old if unique else f"{old}\u0301"
        replacement = new if unique else f"{new}\u0301"
        memory = (await alice("memory.write", content=text, tags=["kept"]))["id"]
        receipt = await alice("memory.patch", id=memory, old_string=fragment, new_string=replacement)
        after = await alice("memory.get", id=memory)
        same(f"{text!r} with {fragment!r} replaced by {replacement!r}", after["content"], expected)
        same("the receipt's content_length", receipt["content_length"], len(expected))
        same("the receipt's delta", receipt["delta"], len(expected) - len(text))
        same("the tags after a patch", after["tags"], ["kept"])


@RULES(
    "MUT-09",
    "patch_no_change, content_empty and content_too_long are judged by the content after the edit, exactly 64,000 "
    "characters are accepted, and a refusal changes nothing.",
)
async def limits_after_the_edit(world: World) -> None:
    alice = world.caller("alice")
    await _refused_edits(world)
    full = (await alice("memory.write", content="😀" * LIMIT))["id"]
    same("the longest content, written", len((await alice("memory.get", id=full))["content"]), LIMIT)
    async with world.unchanged("a write of 64,001 characters"):
        await alice.refused("content_too_long", "memory.write", content="x" * (LIMIT + 1))
    await alice("memory.update", id=full, content="y" * (LIMIT - 40_000) + "b" * 40_000)
    await alice("memory.patch", id=full, old_string="b" * 40_000, new_string="c" * 40_000)
    same("the longest content, patched", (await alice("memory.get", id=full))["content"].count("c"), 40_000)
    async with world.unchanged("an update to 64,001 characters"):
        await alice.refused("content_too_long", "memory.update", id=full, content="x" * (LIMIT + 1))


async def _refused_edits(world: World) -> None:
    alice = world.caller("alice")
    near = "a" + "x" * (LIMIT - 11)
    memory = (await alice("memory.write", content=near))["id"]
    async with world.unchanged("refused edits"):
        await alice.refused("patch_no_change", "memory.patch", id=memory, old_string="ax", new_string="ax")
        await alice.refused("content_empty", "memory.patch", id=memory, old_string=near, new_string="")
        await alice.refused("content_empty", "memory.update", id=memory, content="")
        short = "b" * 12
        await alice.refused("content_too_long", "memory.patch", id=memory, old_string="a", new_string=short)
    await alice("memory.patch", id=memory, old_string="a", new_string="b" * 11)
    after = (await alice("memory.get", id=memory))["content"]
    same("the content filled up by a patch", (len(after), after[:12]), (LIMIT, "b" * 11 + "x"))
