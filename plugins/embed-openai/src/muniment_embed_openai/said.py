"""What a server says of a request that it refuses: read from its answer, and fit to be shown.

Owns the shapes in which OpenAI and servers like it say so, and that neither the key nor a text comes back in a message:
servers repeat both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import httpx2

_SHOWN_MAX: Final = 200
_READ_MAX: Final = 400
"""Characters of a message that are looked at; what comes after them is not shown."""
_ECHO: Final = 16
"""Characters in a row that a message and a text have in common where it repeats the text."""
_PIECE: Final = 6
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|.)", re.DOTALL)
_CREDENTIAL = re.compile(r"(?i)\bbearer\s+\S+|\bsk-[\w*.-]+")


@dataclass(frozen=True, slots=True)
class Said:
    """``codes`` are the answer's code and type, ``param`` is the field that it is about, ``message`` its words."""

    codes: frozenset[str] = frozenset()
    param: str = ""
    message: str = ""

    def shown(self, key: str | None, texts: Sequence[str]) -> str:
        """The first line of the message, and nothing of one that repeats a text; credentials taken out."""
        read = self.message.strip()[:_READ_MAX]
        message = _CREDENTIAL.sub("***", _without(key, read) if key else read)
        line = message.strip().partition("\n")[0][:_SHOWN_MAX].strip()
        return "" if line.startswith("<") or _repeats(read, texts) else line


def said_in(response: httpx2.Response) -> Said:
    """What an answer that was read says; nothing where it is no JSON, or of no known shape."""
    try:
        body: Any = response.json()
    except ValueError:
        return Said()
    facts = _mapping(body[0] if isinstance(body, list) and body else body)
    inner = facts.get("error", facts.get("detail", facts))
    if isinstance(inner, str):
        return Said(message=inner)
    error = _mapping(inner)
    codes = {str(error[name]).lower() for name in ("code", "type", "status") if error.get(name) is not None}
    message = error.get("message")
    return Said(frozenset(codes), str(error.get("param") or ""), message if isinstance(message, str) else "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _without(key: str, message: str) -> str:
    """The message without the words that hold the key or a piece of it, as servers shorten keys that they repeat."""
    pieces = {key[place : place + _PIECE] for place in range(max(1, len(key) - _PIECE + 1))}
    return re.sub(r"\S+", lambda word: "***" if any(piece in word[0] for piece in pieces) else word[0], message)


def _repeats(message: str, texts: Sequence[str]) -> bool:
    """Whether a message holds a text, or a piece of one: as it is, or escaped, in another case or otherwise spaced."""
    plain = [_plain(text) for text in texts]
    said = (message, texts), (_plain(message), plain), (_plain(_ESCAPE.sub(_unescaped, message)), plain)
    return any(_have_in_common(one, of) for one, of in said)


def _have_in_common(message: str, texts: Sequence[str]) -> bool:
    """Whether a message holds a text, or 16 characters in a row of one."""
    if any(len(text) < _ECHO and text.strip() and text in message for text in texts):
        return True
    whole = "\n".join(texts)
    return any(message[place : place + _ECHO] in whole for place in range(len(message) - _ECHO + 1))


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    return chr(int(code, 16)) if code else " "
