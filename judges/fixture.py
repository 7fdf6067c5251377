"""A server of the conformance suite's own tools, through Muniment's transport for MCP over HTTP.

The suite calls tools of fixed names. They stand here in the registry's place, and everything around them is what
``muniment serve --http`` runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field

from muniment.engine import Engine
from muniment.errors import NotFound
from muniment.inputs import Input
from muniment.models import CallContext, Principal
from muniment.operations import Operation
from muniment.ports import Callers
from muniment.reference import ReferenceStorage
from muniment.serving.addresses import Address
from muniment_transport_mcp.http import HttpTransport
from muniment_transport_mcp.tools import TOOLS


class Nothing(Input):
    """No argument."""


class Mirrored(Input):
    """An argument that a client of 2026-07-28 repeats in the header ``Mcp-Param-Region``."""

    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]


class Said(BaseModel):
    """What a tool returns."""

    text: str


def _operation(name: str, description: str, arguments: type[Input] = Nothing) -> Operation:
    return Operation(name=name, title=name, description=description, input=arguments, output=Said)


FIXTURES = (
    _operation("test_simple_text", "Returns a text."),
    _operation("test_error_handling", "Always refuses."),
    _operation("test_mirrored_header", "Takes an argument that is in a header too.", Mirrored),
)


class Fixtures(Engine):
    """The engine, with the suite's tools for its operations."""

    async def call(self, name: str, payload: Mapping[str, Any], context: CallContext) -> BaseModel:
        """Run one of the suite's tools."""
        TOOLS[name].parse(payload)
        if name == "test_error_handling":
            raise NotFound("This tool intentionally returns an error for testing.")
        return Said(text="This is a simple text response for testing.")


async def main() -> None:
    """Serve at a port that the system chooses, until a signal comes."""
    registered = cast("dict[str, Operation]", TOOLS)
    registered.clear()
    registered.update({operation.name: operation for operation in FIXTURES})
    local = CallContext(principal=Principal(user="judge"), surface="cli")
    async with Fixtures(ReferenceStorage(), None) as engine:
        await HttpTransport(Address("127.0.0.1", 0)).serve(engine, Callers(local, anybody=True))


if __name__ == "__main__":
    asyncio.run(main())
