"""A process that opens an embedded storage, for the tests of processes; run as a script.

It prints ``open`` once it is, or the refusal; it does what it reads from standard input line by line, and ends at its
end: ``write ID``, ``count``, ``close``, and ``leave`` to exit without closing.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from uuid import uuid4

from muniment import access, lexical
from muniment.errors import MunimentError
from muniment.ports import Audience, AuditDraft, Create, Index, PluginContext, Selector
from muniment_storage_postgres.storage import PostgresStorage, create


async def main(data_dir: str) -> None:
    """Open, then follow the orders."""
    storage = create(PluginContext("embedded:", Path(data_dir), {"partitions": 2}))
    try:
        await storage.open()
    except MunimentError as refusal:
        say(f"{refusal.code}: {refusal}")
        return
    say("open")
    while True:
        order, _, argument = (await asyncio.to_thread(sys.stdin.readline)).strip().partition(" ")
        if order == "write":
            await write(storage, argument)
            say("written")
        elif order == "count":
            found = await storage.list_memories(Audience("ann"), Selector(), after=None, limit=100)
            say(str(len(found)))
        elif order == "leave":
            sys.exit(0)
        else:
            await storage.close()
            say("closed")
            return


async def write(storage: PostgresStorage, memory_id: str) -> None:
    """One memory of ann's."""
    placement = access.own_placement("ann")
    audit = AuditDraft(
        str(uuid4()), "ann", None, "test", "memory.write", memory_id, None, 1, ("content",), placement.scope_key
    )
    index = Index(lexical.ANALYSER, lexical.analyse("words"), None)
    await storage.apply(
        Create(
            memory_id=memory_id,
            editor="ann",
            audit=audit,
            placement=placement,
            content="words",
            tags=(),
            index=index,
        )
    )


def say(*words: str) -> None:
    """Tell the test."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
