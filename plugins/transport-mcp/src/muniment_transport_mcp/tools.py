"""The operations as tools: names, compact input schemas, annotations. What a call does is ``server``'s.

A host puts the whole list into the model's context, so it is kept small: each caller's own tools only, definitions
inlined, titles of fields and the numbers that nobody reaches dropped, and no ``null`` where leaving an optional field
out says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from mcp_types import Tool, ToolAnnotations
from pydantic import BaseModel

from muniment.agent_models import DeliveryPage, EnvelopeView, SharedView
from muniment.models import MemoryPage, MemoryRecord, Principal, SearchPage
from muniment.operations import OPERATIONS, Operation, respelled

Schema = dict[str, Any]

RESULT_CHARACTERS_MAX = 400_000
"""What a result that carries content may reach: 64,000 characters, each escaped as six, and the fields around
them. Hosts that know ``RESULT_SIZE_KEY`` keep results up to it in the model's context."""

RESULT_SIZE_KEY = "anthropic/maxResultSizeChars"
"""The ``_meta`` key by which a host is asked not to divert a large result to a file."""

_WITH_CONTENT = (MemoryRecord, MemoryPage, SearchPage, EnvelopeView, SharedView, DeliveryPage)
_UNREACHED = 2**31 - 1


def tool_name(operation: str) -> str:
    """The tool for ``operation``: ``memory.patch`` is ``memory_patch``, since several hosts refuse dots."""
    return operation.replace(".", "_")


TOOLS: Mapping[str, Operation] = {tool_name(name): operation for name, operation in OPERATIONS.items()}
"""Each operation by the name of its tool."""


def tools_of(caller: Principal) -> Mapping[str, Operation]:
    """The operations that ``caller`` may call, by tool, in the registry's order.

    Those for which it would have to ask for a larger scope are among them: a call of what a client does not see would
    never be refused, and so never be the reason to ask.
    """
    return {name: operation for name, operation in TOOLS.items() if operation.is_within_reach(caller)}


def list_tools(caller: Principal) -> list[Tool]:
    """The tools of ``caller``: everybody's, and an agent's or the platform's own."""
    return [_tool(name, operation) for name, operation in tools_of(caller).items()]


def schema_of(tool: str) -> Schema | None:
    """The input schema of a tool, None where there is none of that name."""
    return _tool(tool, TOOLS[tool]).input_schema if tool in TOOLS else None


@cache
def _tool(name: str, operation: Operation) -> Tool:
    carries_content = issubclass(operation.output, _WITH_CONTENT)
    return Tool(
        name=name,
        title=operation.title,
        description=in_tool_names(operation.description),
        input_schema=input_schema(operation.input),
        annotations=ToolAnnotations(
            read_only_hint=operation.read_only,
            destructive_hint=operation.destructive,
            idempotent_hint=operation.idempotent,
            open_world_hint=False,
        ),
        _meta={RESULT_SIZE_KEY: RESULT_CHARACTERS_MAX} if carries_content else None,
    )


def in_tool_names(text: str) -> str:
    """``text`` with the operations that it mentions called by their tools' names."""
    return respelled(text, tool_name)


def input_schema(model: type[BaseModel]) -> Schema:
    """The JSON Schema of ``model``'s input, without references and without what says nothing."""
    schema = model.model_json_schema()
    definitions: Mapping[str, Schema] = schema.pop("$defs", {})
    return _compact(schema, definitions)


def _compact(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    schema = _without_null(_dereferenced(schema, definitions))
    compact: Schema = {}
    for keyword, value in schema.items():
        match keyword:
            case "title":
                continue
            case "maximum" if value == _UNREACHED:
                continue
            case "properties":
                properties = cast("Mapping[str, Schema]", value)
                compact[keyword] = {name: _compact(field, definitions) for name, field in properties.items()}
            case "items" if isinstance(value, dict):
                compact[keyword] = _compact(cast("Schema", value), definitions)
            case "anyOf" | "oneOf" | "allOf":
                compact[keyword] = [_compact(option, definitions) for option in cast("list[Schema]", value)]
            case _:
                compact[keyword] = value
    return compact


def _dereferenced(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    target = dict(definitions[reference.removeprefix("#/$defs/")])
    # A model's docstring is for whoever reads the source.
    target.pop("description", None)
    siblings = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
    return _dereferenced({**target, **siblings}, definitions)


def _without_null(schema: Schema) -> Schema:
    """An optional field's schema without its ``null``, where null is what leaving it out means."""
    options = cast("list[Schema]", schema.get("anyOf", []))
    others = [option for option in options if option.get("type") != "null"]
    if len(others) == len(options) or len(others) != 1 or schema.get("default", ...) is not None:
        return schema
    siblings = {keyword: value for keyword, value in schema.items() if keyword not in ("anyOf", "default")}
    return {**others[0], **siblings}
