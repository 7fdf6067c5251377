"""Calls over stdio, by the SDK's client against the real engine: what arrives, and in what shape."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequest, CallToolRequestParams, CallToolResult, TextContent

from muniment import errors
from muniment.agent_models import (
    AgentReceipt,
    DeadPage,
    DeliveryPage,
    EnvelopeView,
    EventReceipt,
    ExchangeReceipt,
    RequeueReceipt,
    SectionName,
    SectionReceipt,
    SharedView,
)
from muniment.errors import MunimentError
from muniment.models import (
    HistoryPage,
    Identified,
    MemoryPage,
    MemoryRecord,
    ProjectPage,
    Receipt,
    SearchPage,
)
from muniment.operations import OPERATIONS

Connect = Callable[..., AbstractAsyncContextManager[Client]]

ERAS = [("legacy", "2025-11-25"), ("auto", "2026-07-28")]
REFUSALS = [
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, MunimentError) and kind.code != "internal"
]


def text(result: object) -> str:
    """The one text block of a result."""
    assert isinstance(result, CallToolResult)
    assert result.structured_content is None
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def succeed(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    assert not result.is_error, text(result)
    return text(result)


async def refuse(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The body of a call that must be refused."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, CallToolResult)
    assert result.is_error
    return json.loads(text(result))


async def listed_operations(client: Client) -> set[str]:
    """The operations whose tools a client sees."""
    return {tool.name.replace("_", ".", 1) for tool in (await client.list_tools()).tools}


@pytest.mark.parametrize(("mode", "revision"), ERAS)
async def test_every_operation_is_reachable_in_both_eras(connect: Connect, mode: str, revision: str) -> None:
    """TRA-01: each tool runs its operation and gives its record, by the handshake and without it."""
    async with connect(mode=mode) as client:
        assert client.protocol_version == revision
        assert client.instructions
        assert await listed_operations(client) == {name for name, one in OPERATIONS.items() if one.audience == "user"}

        project = Identified.model_validate_json(await succeed(client, "project_identify", project="acme/docs"))
        assert project.created
        listed = ProjectPage.model_validate_json(await succeed(client, "project_list"))
        assert [item.key for item in listed.items] == ["acme/docs"]
        shared = Receipt.model_validate_json(
            await succeed(client, "project_share", project="acme/docs", group="team", access="ro")
        )
        Receipt.model_validate_json(
            await succeed(client, "project_unshare", project="acme/docs", group="team", version=shared.version)
        )
        content = "Deploys are frozen on Fridays — 金曜日 🧊.\r\n"
        written = Receipt.model_validate_json(
            await succeed(client, "memory_write", content=content, tags=["ops"], project="acme/docs")
        )
        memory = MemoryRecord.model_validate_json(await succeed(client, "memory_get", id=written.id))
        assert (memory.content, memory.tags, memory.last_edited_by) == (content, ("ops",), "ada")
        page = MemoryPage.model_validate_json(await succeed(client, "memory_list", tags=["ops"]))
        assert page.items == (memory,)
        found = SearchPage.model_validate_json(await succeed(client, "memory_search", query="frozen deploys"))
        assert [hit.memory for hit in found.items] == [memory]
        await succeed(client, "memory_patch", id=memory.id, old_string="Fridays", new_string="Mondays", version=1)
        await succeed(client, "memory_update", id=memory.id, tags=["ops", "calendar"], version=2)
        await succeed(client, "memory_delete", id=memory.id, version=3)
        await succeed(client, "memory_restore", id=memory.id, version=4)
        history = HistoryPage.model_validate_json(await succeed(client, "memory_history", id=memory.id))
        assert [entry.action.split(".")[-1] for entry in reversed(history.items)][1:] == [
            "patch",
            "update",
            "delete",
            "restore",
        ]
        assert {entry.surface for entry in history.items} == {"mcp"}


async def test_an_agent_s_operations_are_reachable(connect: Connect) -> None:
    """TRA-01: an agent's principal sees its tools beside everybody's, and each runs its operation."""
    async with connect(role="agent") as client:
        audiences = {OPERATIONS[name].audience for name in await listed_operations(client)}
        assert audiences == {"user", "agent"}

        daily = [{"date": "2026-02-03", "content": "Moved the release — 金曜日."}]
        SectionReceipt.model_validate_json(await succeed(client, "section_save", section="daily", value=daily))
        sent = {"soul": {"value": "Calm."}, "runtime_meta": {"value": {"model": "m"}}}
        SectionReceipt.model_validate_json(
            await succeed(client, "section_sync", mode="patch", runtime="r1", sections=sent)
        )
        SectionReceipt.model_validate_json(await succeed(client, "section_log_cycle", text="Read the mail."))
        own = EnvelopeView.model_validate_json(await succeed(client, "section_read"))
        assert own.sections[SectionName.DAILY].value == daily
        assert own.sections[SectionName.RUNTIME_META].value == {"model": "m"}
        shared = await succeed(client, "section_read_shared", agent={"name": "bert", "instance": "1"})
        assert SharedView.model_validate_json(shared).sections == {}
        assert DeliveryPage.model_validate_json(await succeed(client, "event_claim")).items == ()
        for tool in ("event_ack", "event_extend"):
            assert (await refuse(client, tool, id="none", token="none"))["code"] == "not_found"
        refused = await refuse(client, "section_save", section="system_exchanges", value=[])
        assert (refused["code"], refused["details"]["reason"]) == ("section_read_only", "system_exchanges_is_read_only")


async def test_the_platform_s_operations_are_reachable(connect: Connect) -> None:
    """TRA-01: a platform's principal sees its tools beside everybody's, and each runs its operation."""
    ada, bert = ({"name": name, "instance": "1"} for name in ("ada", "bert"))
    room = {"surface_pod_id": "pod-7", "surface_label": "Design room"}
    async with connect(role="platform") as client:
        audiences = {OPERATIONS[name].audience for name in await listed_operations(client)}
        assert audiences == {"user", "platform"}

        AgentReceipt.model_validate_json(await succeed(client, "agent_register", agent=ada, pods=["pod-7"]))
        for tool, arguments in {
            "exchange_dm_concluded": {"peers": [ada, bert], "messages": ["Thursday it is."]},
            "exchange_loop_tripped": {"peers": [ada, bert]},
            "exchange_task_completed": {"assignee": ada, "title": "Release notes", "result": "merged"},
        }.items():
            recorded = await succeed(client, tool, dedupe_key=tool, **room, **arguments)
            assert not ExchangeReceipt.model_validate_json(recorded).deduped
        EventReceipt.model_validate_json(await succeed(client, "event_enqueue", agent=ada, payload={"content": "Hi"}))
        assert DeadPage.model_validate_json(await succeed(client, "event_dead", agent=ada)).items == ()
        requeued = RequeueReceipt.model_validate_json(await succeed(client, "event_requeue", agent=ada, ids=["x"]))
        assert requeued.requeued == ()


@pytest.mark.parametrize("role", ["user", "agent", "platform"])
async def test_tools_of_others_are_refused(connect: Connect, role: str) -> None:
    """What a caller does not see it cannot call either: the engine refuses it with access_denied."""
    async with connect(role=role) as client:
        hidden = set(OPERATIONS) - await listed_operations(client)
        assert {OPERATIONS[name].audience for name in hidden} == {"agent", "platform"} - {role}
        for name in hidden:
            assert (await refuse(client, name.replace(".", "_")))["code"] == "access_denied"


async def test_refusals_arrive_with_their_codes(connect: Connect) -> None:
    """TRA-01: every refusal that there is arrives as code, message and details, as text alone."""
    async with connect("failing") as client:
        for name in REFUSALS:
            kind = getattr(errors, name)
            body = await refuse(client, "memory_search", query=name)
            assert body["code"] == kind.code
            assert body["message"]
            assert body["details"]
            assert body.keys() == {"code", "message", "details"}


async def test_an_internal_error_shows_only_an_id(connect: Connect, tmp_path: Path) -> None:
    """TRA-04: what nobody foresaw is told by an id that finds it in the log, whatever raised it."""
    async with connect("failing") as client:
        for query in ("anything", "Internal", "MunimentError"):
            body = await refuse(client, "memory_search", query=query)
            incident = body["details"]["id"]
            assert body == {
                "code": "internal",
                "message": f"Something failed inside; the id {incident} finds it in the server's log.",
                "details": {"id": incident},
            }
            log = (tmp_path / "stderr.txt").read_text(encoding="utf-8")
            assert f"internal error {incident} in memory.search" in log
        assert "secret: select" in (tmp_path / "stderr.txt").read_text(encoding="utf-8")


async def test_bad_input_is_refused_and_named(connect: Connect) -> None:
    """TRA-03, READ-05: unknown fields, wrong types and unstorable text are refused by the engine, naming the field."""
    async with connect() as client:
        for arguments, field in (
            ({"content": "a", "contents": "b"}, "contents"),
            ({"content": 7}, "content"),
            ({"content": "a", "tags": "ops"}, "tags"),
            ({"content": "a\x00b"}, "content"),
            ({}, "content"),
        ):
            body = await refuse(client, "memory_write", **arguments)
            assert (body["code"], body["details"]) == ("invalid_input", {"field": field})
        assert (await refuse(client, "memory_write", content="a", project="nobody/knows"))["code"] == "unknown_project"
        listed = MemoryPage.model_validate_json(await succeed(client, "memory_list"))
        assert listed.items == ()


@pytest.mark.parametrize(("mode", "_revision"), ERAS)
async def test_params_of_the_wrong_type_are_named(connect: Connect, mode: str, _revision: str) -> None:
    """The protocol's error, with the refusal in its data; nothing of what was sent."""
    async with connect(mode=mode) as client:
        for arguments in ("hunter2", ["hunter2"], 7):
            request = CallToolRequest(
                params=CallToolRequestParams.model_construct(name="memory_list", arguments=arguments)
            )
            with pytest.warns(UserWarning, match="serialized"), pytest.raises(MCPError) as caught:
                await client.session.send_request(request, CallToolResult)
            assert caught.value.error.code == INVALID_PARAMS
            assert caught.value.error.data["details"] == {"field": "arguments"}
            assert "JSON object" in caught.value.error.message
            assert "hunter2" not in str(caught.value.error)


async def test_missing_arguments_are_none(connect: Connect) -> None:
    """A call without arguments is one with none."""
    async with connect() as client:
        assert not (await client.call_tool("project_list")).is_error


async def test_an_unknown_tool_is_the_protocol_s_error(connect: Connect) -> None:
    """No tool ran, so there is no tool's result; the error names the tools and the session goes on."""
    async with connect() as client:
        with pytest.raises(MCPError, match="memory_patch") as caught:
            await client.call_tool("memory.patch", {})
        assert caught.value.error.code == INVALID_PARAMS
        assert caught.value.error.data == {"code": "not_found", "message": caught.value.error.message}
        await succeed(client, "project_list")


@pytest.mark.parametrize("mode", [mode for mode, _ in ERAS])
async def test_a_read_is_its_content_and_little_more(connect: Connect, mode: str) -> None:
    """A memory's content is sent once: the whole result is at most 700 characters longer, escapes aside."""
    async with connect(mode=mode) as client:
        for size in (300, 1_000, 27_662, 64_000):
            content = ("Größe 大小 " * size)[: size - 1] + "."
            written = Receipt.model_validate_json(await succeed(client, "memory_write", content=content))
            result = await client.call_tool("memory_get", {"id": written.id})
            assert MemoryRecord.model_validate_json(text(result)).content == content
            whole = json.dumps(result.model_dump(by_alias=True, mode="json", exclude_none=True), ensure_ascii=False)
            assert len(whole) <= size + 700


async def test_many_calls_share_a_connection(connect: Connect) -> None:
    """Calls run side by side, and each gets its own answer."""
    async with connect("slow") as client:
        async with asyncio.timeout(15):
            receipts = await asyncio.gather(
                *(succeed(client, "memory_write", content=f"memory {number}") for number in range(40))
            )
        assert len({Receipt.model_validate_json(receipt).id for receipt in receipts}) == 40


async def test_a_cancelled_call_leaves_the_session_whole(connect: Connect) -> None:
    """A client that gives one call up still gets answers to the next ones."""
    async with connect("slow") as client:
        call = asyncio.create_task(succeed(client, "memory_write", content="given up"))
        await asyncio.sleep(0.3)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert json.loads(await succeed(client, "memory_list"))["items"] == []


async def test_a_loading_model_delays_nothing(connect: Connect) -> None:
    """TRA-07: the handshake, the list of tools and word search are answered while the embedder loads."""
    async with asyncio.timeout(20), connect("loading") as client:
        await client.list_tools()
        await succeed(client, "memory_write", content="the lighthouse keeper's log")
        found = SearchPage.model_validate_json(await succeed(client, "memory_search", query="lighthouse"))
        assert len(found.items) == 1
        assert found.degraded
