"""What a client sees of the operations before it calls one: names, schemas, annotations, and how much of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from muniment import sections
from muniment.agent_models import SectionName
from muniment.errors import ConfigurationError
from muniment.models import Agent, Principal
from muniment.operations import OPERATIONS
from muniment.ports import PluginContext
from muniment_transport_mcp.server import INSTRUCTIONS
from muniment_transport_mcp.tools import RESULT_SIZE_KEY, list_tools
from muniment_transport_mcp.transport import create

PLAIN = Principal(user="ada", groups=frozenset({"team"}))
AGENT = PLAIN.model_copy(update={"agent": Agent(name="ada", instance="1")})
PLATFORM = PLAIN.model_copy(update={"platform": True})
BOTH = AGENT.model_copy(update={"platform": True})


def seen(caller: Principal) -> dict[str, dict[str, Any]]:
    """The tools of a caller as they are sent, by name."""
    return {tool.name: tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in list_tools(caller)}


TOOLS = seen(BOTH)


def schemas(node: object) -> Iterator[dict[str, Any]]:
    """Every schema in ``node``, however deep."""
    if isinstance(node, dict):
        schema = cast("dict[str, Any]", node)
        yield schema
        for keyword, value in schema.items():
            for child in value.values() if keyword == "properties" else [value]:
                yield from schemas(child)
    elif isinstance(node, list):
        for option in cast("list[Any]", node):
            yield from schemas(option)


def test_each_operation_is_a_tool_without_dots() -> None:
    """Tools are the registry's operations, no more and no fewer, under names that every host accepts."""
    assert list(TOOLS) == [name.replace(".", "_") for name in OPERATIONS]


@pytest.mark.parametrize(
    ("caller", "audiences"),
    [
        (PLAIN, {"user"}),
        (AGENT, {"user", "agent"}),
        (PLATFORM, {"user", "platform"}),
        (BOTH, {"user", "agent", "platform"}),
    ],
    ids=["user", "agent", "platform", "both"],
)
def test_callers_see_their_own_tools(caller: Principal, audiences: set[str]) -> None:
    """An agent sees its tools, the platform the platform's, and somebody who is neither sees neither."""
    expected = [name.replace(".", "_") for name, one in OPERATIONS.items() if one.audience in audiences]

    assert list(seen(caller)) == expected


@pytest.mark.parametrize(("caller", "most"), [(PLAIN, 12_000), (AGENT, 17_000), (PLATFORM, 17_500)])
def test_the_list_of_tools_is_small(caller: Principal, most: int) -> None:
    """A caller's whole reply stays small, since hosts put it into every conversation."""
    assert len(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": list(seen(caller).values())}})) < most


def test_instructions_are_short() -> None:
    """What a host tells its model about the server is under 600 characters."""
    assert len(INSTRUCTIONS) < 600


@pytest.mark.parametrize("name", TOOLS)
def test_schemas_are_strict_and_compact(name: str) -> None:
    """A schema refuses unknown fields, and holds no reference, no title and no null."""
    schema = TOOLS[name]["inputSchema"]
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    for part in schemas(schema):
        assert not {"$ref", "$defs", "title", "propertyNames"} & part.keys()
        assert part.get("type") != "null"
        assert part.get("default", "") is not None


@pytest.mark.parametrize("name", TOOLS)
def test_every_field_has_a_type_that_strict_hosts_take(name: str) -> None:
    """One type each, or a choice of typed ones; an array says of what. Some hosts send the value of an untyped field
    as a string, and some refuse a list of types, or a choice as the item of an array."""
    for part in schemas(TOOLS[name]["inputSchema"]):
        assert isinstance(part.get("type"), str) != ("anyOf" in part)
        assert part.get("type") != "array" or isinstance(part["items"].get("type"), str)


def test_a_section_is_named_with_its_type() -> None:
    """What a section holds is told for each; those that an agent cannot write are not offered."""
    synced = TOOLS["section_sync"]["inputSchema"]["properties"]["sections"]["properties"]
    offered = TOOLS["section_save"]["inputSchema"]["properties"]["section"]["enum"]

    assert set(offered) == set(synced) == {name.value for name in SectionName if name not in sections.ALWAYS_PRIVATE}
    types = {name: one["properties"]["value"]["type"] for name, one in synced.items()}
    assert types == {name: {str: "string", dict: "object", list: "array"}[type(sections.empty(name))] for name in types}


def test_schemas_keep_defaults_and_limits() -> None:
    """What a field defaults to, and how far it may go, is told."""
    assert TOOLS["memory_search"]["inputSchema"]["properties"]["limit"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 50,
        "default": 10,
    }


@pytest.mark.parametrize("name", TOOLS)
def test_annotations_are_the_registry_s(name: str) -> None:
    """A host may ask its user before a destructive call; so the hints are the operation's own flags."""
    operation = OPERATIONS[name.replace("_", ".", 1)]
    assert TOOLS[name]["title"] == operation.title
    assert TOOLS[name]["annotations"] == {
        "readOnlyHint": operation.read_only,
        "destructiveHint": operation.destructive,
        "idempotentHint": operation.idempotent,
        "openWorldHint": False,
    }


def test_tools_that_return_content_ask_hosts_to_keep_it() -> None:
    """Large results of reads are asked to stay in the model's context."""
    assert [name for name, tool in TOOLS.items() if RESULT_SIZE_KEY in tool.get("_meta", {})] == [
        "memory_get",
        "memory_list",
        "memory_search",
        "section_read",
        "section_read_shared",
        "event_claim",
    ]


def test_descriptions_call_tools_by_their_names() -> None:
    """A description that mentions another operation uses the name that the model can call."""
    assert not [tool["name"] for tool in TOOLS.values() if any(name in tool["description"] for name in OPERATIONS)]


def test_the_descriptor_imports_no_sdk() -> None:
    """Discovery costs no import of the SDK."""
    code = "import muniment_transport_mcp, sys; print('mcp' in sys.modules or 'mcp_types' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(("spec", "options"), [("mcp:http", {}), ("mcp", {"port": 1})])
def test_what_is_not_served_is_refused(spec: str, options: dict[str, Any]) -> None:
    """A transport or a setting that does not exist stops the start, by name."""
    with pytest.raises(ConfigurationError):
        create(PluginContext(spec=spec, data_dir=Path(), options=options))
