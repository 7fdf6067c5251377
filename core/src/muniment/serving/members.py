"""JSON of which nothing may be read in two ways: each member of an object is there once.

RFC 8259 (section 4) leaves open which of several counts, so that whoever checked a request may have seen another one
than whoever answers it.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from muniment.errors import InvalidInput


def parsed(text: str) -> object:
    """The value of a JSON text. Raises InvalidInput for a member that is sent twice, else as ``json.loads`` does."""
    return json.loads(text, object_pairs_hook=_each_once)


def _each_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    if len(made) < len(members):
        name, _ = Counter(name for name, _ in members).most_common(1)[0]
        raise InvalidInput("body", f"it has {json.dumps(name[:100])} more than once in one object; send it once")
    return made
