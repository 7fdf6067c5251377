"""The registry: every operation's name, input, output, flags and description. Transports are generated from it.

An input model states shape, type and field limits; what needs the stored state is the engine's. Inputs are strict: no
coercion, and an unknown field is refused, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from muniment.errors import NotFound
from muniment.operations.agents import AGENT_OPERATIONS
from muniment.operations.memories import MEMORY_OPERATIONS
from muniment.operations.operation import Operation
from muniment.operations.projects import PROJECT_OPERATIONS
from muniment.operations.tokens import TOKEN_OPERATIONS

__all__ = ["OPERATIONS", "Operation", "find", "respelled"]

OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (*PROJECT_OPERATIONS, *MEMORY_OPERATIONS, *AGENT_OPERATIONS, *TOKEN_OPERATIONS)
}

# The longest first, since a name may begin with another one.
_MENTIONED = re.compile("|".join(map(re.escape, sorted(OPERATIONS, key=len, reverse=True))))


def find(name: str) -> Operation:
    """The operation called ``name``. Raises NotFound."""
    operation = OPERATIONS.get(name)
    if operation is None:
        raise NotFound(f"There is no operation {name[:100]!r}; the operations are {', '.join(OPERATIONS)}.")
    return operation


def respelled(text: str, spell: Callable[[str], str]) -> str:
    """``text`` with the operations that it mentions called as ``spell`` calls them."""
    return _MENTIONED.sub(lambda found: spell(found[0]), text)
