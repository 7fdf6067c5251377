"""The hot statements, by name, from the files beside this one.

A statement begins at a line ``-- name: NAME``; a line ``-- include: NAME`` stands for another one, of any file. One
with a line ``-- once: NAME`` is there twice: as ``STATEMENT`` without that part, and as ``STATEMENT_once`` with it. So
it is with the other choices; with two such lines it is there four times, one of them ``STATEMENT_registering_once``.
Parameters are psycopg's, ``%(name)s``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_FILES = (
    "agents",
    "background",
    "events",
    "memories",
    "mutations",
    "projects",
    "receipts",
    "search",
    "spaces",
    "tokens",
    "upkeep",
)
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include: (\w+)$", re.MULTILINE)
_SIDE_TABLE = re.compile(rb"\b(FROM|JOIN) (passage|search_entry|search_keys|posting)\b")
_CHOICES = ("registering", "once")
"""What a statement may have or not, in the order of the endings of its names."""


def _load() -> Mapping[str, bytes]:
    texts: dict[str, str] = {}
    for name in _FILES:
        parts = _NAME.split(files(__name__).joinpath(f"{name}.sql").read_text("utf-8"))
        new = dict(zip(parts[1::2], parts[2::2], strict=True))
        if twice := texts.keys() & new.keys():
            raise AssertionError(f"two statements are called {sorted(twice)}")
        texts |= new
    whole = {name: _with_includes(text, texts) for name, text in texts.items()}
    for choice in _CHOICES:
        line = re.compile(rf"^-- {choice}: (\w+)$", re.MULTILINE)
        chosen = {name: line.sub(lambda match: whole[match[1]], text) for name, text in whole.items()}
        whole.update({f"{name}_{choice}": text for name, text in chosen.items() if text != whole[name]})
    return {name: _without_comments(text).encode() for name, text in whole.items()}


def _with_includes(text: str, texts: Mapping[str, str]) -> str:
    return _INCLUDE.sub(lambda match: _with_includes(texts[match[1]], texts), text)


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--"))


STATEMENTS: Mapping[str, bytes] = _load()
"""Every statement, with its includes in place and without comments."""


@cache
def in_partition(name: str, partition: int) -> bytes:
    """A reading statement as it is sent to one partition of each side table, all of which are divided alike."""
    return _SIDE_TABLE.sub(rb"\1 \2_%d" % partition, STATEMENTS[name])
