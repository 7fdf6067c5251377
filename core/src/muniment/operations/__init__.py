"""The registry: every operation's name, input, output, flags and description. Transports are generated from it.

An input model states shape, type and field limits; what needs the stored state is the engine's. Inputs are strict: no
coercion, and an unknown field is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from muniment.errors import NotFound
from muniment.operations.agents import AGENT_OPERATIONS
from muniment.operations.memories import MEMORY_OPERATIONS
from muniment.operations.operation import Operation
from muniment.operations.projects import PROJECT_OPERATIONS

__all__ = ["OPERATIONS", "Operation", "find"]

OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation for operation in (*PROJECT_OPERATIONS, *MEMORY_OPERATIONS, *AGENT_OPERATIONS)
}


def find(name: str) -> Operation:
    """The operation called ``name``. Raises NotFound."""
    operation = OPERATIONS.get(name)
    if operation is None:
        raise NotFound(f"There is no operation {name[:100]!r}; the operations are {', '.join(OPERATIONS)}.")
    return operation
