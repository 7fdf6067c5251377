"""Calls over a socket: what HTTP adds to an operation, and what is refused on the way to it."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, cast
from urllib.parse import quote

import httpx2
import pytest

from muniment.authentication.audited_tokens import AuditedTokens
from muniment.engine import Engine
from muniment.errors import StorageUnavailable
from muniment.models import Agent, CallContext, Principal
from muniment.ports import Callers
from muniment.reference import ReferenceStorage
from muniment.serving.doorway import UNAVAILABLE_SECONDS
from muniment_transport_http.reading import DEPTH_MAX
from muniment_transport_http.routes import ROUTES

Open = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]

ADA = Agent(name="ada", instance="1")
JSON = {"content-type": "application/json"}


async def write(client: httpx2.AsyncClient, content: str = "first line\nsecond line", **more: Any) -> str:
    """The id of a new memory."""
    return str((await client.post("/v1/memories", json={"content": content, **more})).json()["id"])


def problem(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that a response must be."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert {"type", "title", "detail"} <= set(body)
    return body


async def test_a_write_says_where_it_is(client: httpx2.AsyncClient) -> None:
    """201, the memory's address and its version; the address gives the memory."""
    written = await client.post("/v1/memories", json={"content": "a note", "tags": ["t"]})
    read = await client.get(written.headers["location"])

    assert (written.status_code, written.headers["etag"]) == (201, '"v1"')
    assert (read.status_code, read.headers["etag"], read.json()["content"]) == (200, '"v1"', "a note")


@pytest.mark.parametrize(
    ("sent", "status"),
    [('"v1"', 304), ('W/"v1"', 304), ('"v7", "v1"', 304), ("*", 304), ('"v2"', 200), ('"v11"', 200)],
)
async def test_what_the_client_has_is_not_sent(client: httpx2.AsyncClient, sent: str, status: int) -> None:
    """304 without a body where If-None-Match lists the version, strong or weak."""
    path = f"/v1/memories/{await write(client)}"

    read = await client.get(path, headers={"if-none-match": sent})

    assert (read.status_code, read.headers["etag"], bool(read.content)) == (status, '"v1"', status == 200)


async def test_a_stale_precondition_is_not_a_stale_version(client: httpx2.AsyncClient) -> None:
    """A stale If-Match is 412 and a stale ``version`` 409, both with the version that is current; nothing changes."""
    path = f"/v1/memories/{await write(client)}"
    moved = await client.patch(path, json={"tags": ["a"]}, headers={"if-match": '"v1"'})

    by_header = await client.patch(path, json={"tags": ["b"]}, headers={"if-match": '"v1"'})
    by_body = await client.patch(path, json={"tags": ["b"], "version": 1})
    by_query = await client.delete(path, params={"version": 1})

    assert (moved.status_code, moved.headers["etag"]) == (200, '"v2"')
    for refused, status in ((by_header, 412), (by_body, 409), (by_query, 409)):
        assert problem(refused, status, "version_conflict")["details"] == {"current_version": 2}
    assert (await client.get(path)).json()["tags"] == ["a"]


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ('"v0"', ""),
        ('"v2147483648"', ""),
        ('W/"v1"', "a weak tag never matches"),
        ('W/"v2"', "a weak tag never matches"),
        ('"1"', 'such as "v1"'),
        ('""', 'such as "v1"'),
        ('"v01"', 'such as "v1"'),
    ],
)
async def test_a_tag_that_is_no_version_never_matches(client: httpx2.AsyncClient, tag: str, why: str) -> None:
    """An entity tag that no version has, or a weak one, fails the precondition; where reading the memory again would
    not help, the problem says why."""
    path = f"/v1/memories/{await write(client)}"

    refused = problem(await client.delete(path, headers={"if-match": tag}), 412, "version_conflict")
    unseen = await client.delete("/v1/memories/none", headers={"if-match": tag})

    assert why in refused["detail"]
    assert refused["details"] == {"current_version": 1}
    problem(unseen, 404, "not_found")
    assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize("tag", ["v1", "1", "", '"v1', 'w/"v1"', 'W/ "v1"', '*, "v1"', "W/v1"])
async def test_what_is_no_entity_tag_is_refused(client: httpx2.AsyncClient, tag: str) -> None:
    """It is no precondition that could fail, so the header is named and the form of a tag told, whoever asks."""
    path = f"/v1/memories/{await write(client)}"

    for at in (path, "/v1/memories/none"):
        refused = problem(await client.delete(at, headers={"if-match": tag}), 422, "invalid_input")
        assert refused["details"]["field"] == "If-Match"
        assert '"v1"' in refused["detail"]
    assert (await client.get(path)).status_code == 200


async def test_any_version_matches_a_star(client: httpx2.AsyncClient) -> None:
    """``If-Match: *`` asks for no version, but for a memory that is there."""
    path = f"/v1/memories/{await write(client)}"

    assert (await client.delete(path, headers={"if-match": "*"})).status_code == 200
    problem(await client.delete(path, headers={"if-match": "*"}), 404, "not_found")


async def test_the_version_is_said_once(client: httpx2.AsyncClient) -> None:
    """Header and body may say the same; what differs, several tags, and a tag where no version is taken are refused."""
    path = f"/v1/memories/{await write(client)}"

    two = await client.patch(path, json={"tags": ["a"], "version": 2}, headers={"if-match": '"v1"'})
    several = await client.patch(path, json={"tags": ["a"]}, headers={"if-match": '"v1", "v2"'})
    useless = await client.post("/v1/memories", json={"content": "c"}, headers={"if-match": '"v1"'})
    same = await client.patch(path, json={"tags": ["a"], "version": 1}, headers={"if-match": '"v1"'})

    assert [problem(refused, 422, "invalid_input")["details"]["field"] for refused in (two, several, useless)] == [
        "version",
        "If-Match",
        "If-Match",
    ]
    assert same.status_code == 200


async def test_a_section_has_a_version_before_it_is_written(connect: Open) -> None:
    """A section's version begins with 0, so that a first write can be made safe."""
    async with connect("keeper", agent=ADA) as client:
        first = {"if-match": '"v0"'}
        written = await client.put("/v1/agent/sections/soul", json={"value": "kind"}, headers=first)
        again = await client.put("/v1/agent/sections/soul", json={"value": "unkind"}, headers=first)

    assert written.json()["versions"] == {"soul": 1}
    assert problem(again, 412, "version_conflict")["details"] == {"current_version": 1}


async def test_a_retry_gets_the_first_reply(client: httpx2.AsyncClient) -> None:
    """The same key and body give the first receipt; another body, and a key where none is taken, are refused."""
    key = {"idempotency-key": "k-1"}
    first = await client.post("/v1/memories", json={"content": "once"}, headers=key)
    again = await client.post("/v1/memories", json={"content": "once"}, headers=key)
    in_body = await client.post("/v1/memories", json={"content": "once", "idempotency_key": "k-1"})
    other = await client.post("/v1/memories", json={"content": "twice"}, headers=key)
    two = await client.post("/v1/memories", json={"content": "once", "idempotency_key": "k-2"}, headers=key)
    useless = await client.delete(first.headers["location"], headers=key)
    empty = await client.post("/v1/memories", json={"content": "once"}, headers={"idempotency-key": ""})

    assert first.json() == again.json() == in_body.json()
    assert first.headers["location"] == again.headers["location"]
    problem(other, 422, "idempotency_conflict")
    for refused, field in ((two, "idempotency_key"), (useless, "Idempotency-Key"), (empty, "idempotency_key")):
        assert problem(refused, 422, "invalid_input")["details"]["field"] == field
    assert len((await client.get("/v1/memories")).json()["items"]) == 1


@pytest.mark.parametrize("second", ["k-1", "k-2"])
async def test_a_key_is_said_once(client: httpx2.AsyncClient, second: str) -> None:
    """Two headers are refused, also alike: which one counts, two readers may take differently."""
    keys = [("idempotency-key", "k-1"), ("idempotency-key", second)]

    refused = await client.post("/v1/memories", json={"content": "once"}, headers=keys)

    assert problem(refused, 422, "invalid_input")["details"]["field"] == "Idempotency-Key"
    assert (await client.get("/v1/memories")).json()["items"] == []


async def test_null_in_a_merge_patch_removes(client: httpx2.AsyncClient) -> None:
    """RFC 7396: null takes the tags away, and the memory out of its project; content and scope cannot be taken away."""
    path = f"/v1/memories/{await write(client, tags=['t'], project='acme/web')}"
    media = {"content-type": "application/merge-patch+json"}

    for body in ('{"tags": null}', '{"project": null}'):
        assert (await client.patch(path, content=body, headers=media)).status_code == 200
    read = (await client.get(path)).json()
    for body, code in (('{"content": null}', "content_empty"), ('{"scope": null}', "invalid_input")):
        problem(await client.patch(path, content=body, headers=media), 422, code)

    assert (read["tags"], read["scope"], read["project_id"]) == ([], "user", None)
    assert read["content"] == (await client.get(path)).json()["content"]


async def test_text_is_patched_apart(client: httpx2.AsyncClient) -> None:
    """A fragment is replaced by an operation of its own; a merge patch does not know its fields."""
    path = f"/v1/memories/{await write(client)}"

    merged = await client.patch(path, json={"old_string": "first", "new_string": "1st"})
    patched = await client.post(f"{path}/patch", json={"old_string": "first", "new_string": "1st"})

    assert problem(merged, 422, "invalid_input")["details"]["field"] == "old_string"
    assert (patched.json()["delta"], patched.headers["etag"]) == (-2, '"v2"')
    assert (await client.get(path)).json()["content"] == "1st line\nsecond line"


async def test_a_page_links_to_the_next(client: httpx2.AsyncClient) -> None:
    """``Link`` leads through all pages, each item once, keeping the filters; the last page has none."""
    ids = {await write(client, f"note {number}", tags=["a b"[:1]]) for number in range(5)}
    await write(client, "untagged")
    seen: list[str] = []
    url = "/v1/memories?tags=a&limit=2"
    pages = 0
    while url:
        page = await client.get(url)
        seen += [item["id"] for item in page.json()["items"]]
        assert ("link" in page.headers) == (page.json()["cursor"] is not None)
        url = page.links["next"]["url"] if "next" in page.links else ""
        pages += 1

    assert (pages, len(seen), set(seen)) == (3, 5, ids)


async def test_a_project_is_made_by_a_write(connect: Open) -> None:
    """A person who names a new project in a write makes it, unless the configuration says otherwise."""
    async with connect() as client:
        made = await client.post("/v1/memories", json={"content": "c", "project": "acme/new"})
        listed = (await client.get("/v1/projects")).json()["items"]
        read = await client.get("/v1/memories", params={"project": "acme/unread"})
    async with connect("bob", projects="require-existing") as client:
        refused = await client.post("/v1/memories", json={"content": "c", "project": "acme/new"})

    assert made.status_code == 201
    assert [project["key"] for project in listed] == ["acme/new"]
    problem(read, 404, "unknown_project")
    problem(refused, 404, "unknown_project")


async def test_a_project_is_created_once(client: httpx2.AsyncClient) -> None:
    """201 says that this call registered it, 200 that it was there; a key may hold a slash."""
    path = f"/v1/projects/{quote('acme/web', safe='')}"

    answers = [await client.put(path), await client.put(path, json={})]
    shared = await client.put(f"{path}/shares/{quote('a/b c', safe='')}", json={"access": "ro"})
    project = (await client.put(path)).json()["project"]

    assert [(answer.status_code, answer.json()["created"]) for answer in answers] == [(201, True), (200, False)]
    assert shared.status_code == 200
    assert (project["key"], project["shares"]) == ("acme/web", {"a/b c": "ro"})
    assert (await client.delete(f"{path}/shares/{quote('a/b c', safe='')}?version=2")).status_code == 200


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a:b@c+d"])
async def test_any_agent_has_an_address(connect: Open, name: str) -> None:
    """A name that holds a slash, or is a step in a path, is one segment when it is percent-encoded."""
    path = f"/v1/agents/{quote(name, safe='').replace('.', '%2E')}/1"
    async with connect("platform", platform=True) as client:
        registered = await client.put(path, json={"pods": ["den"]})

    assert registered.json()["agent"] == {"name": name, "instance": "1"}


async def test_head_is_get_without_the_body(client: httpx2.AsyncClient) -> None:
    """The same status and headers, and no body."""
    path = f"/v1/memories/{await write(client)}"

    got, headed = await client.get(path), await client.head(path)

    assert (headed.status_code, headed.content) == (200, b"")
    assert [headed.headers[name] for name in ("etag", "content-length")] == [
        got.headers[name] for name in ("etag", "content-length")
    ]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("unknown=1", "unknown"),
        ("user=bob", "user"),
        ("content=x", "content"),
        ("limit=1&limit=2", "limit"),
        ("limit=1.0", "limit"),
        ("limit=%221%22", "limit"),
        ("limit=+1", "limit"),
        ("limit=1e1", "limit"),
        ("limit=", "limit"),
        ("limit=" + "9" * 5_000, "limit"),
        ("limit=%D9%A1", "limit"),
        ("deleted=1", "deleted"),
        ("deleted=True", "deleted"),
        ("deleted=null", "deleted"),
        ("scope=user&scope=user", "scope"),
        ("project=a%00", "project"),
        ("project=%ff", "project"),
        ("tags=", "tags.0"),
        ("cursor=", "cursor"),
        ("x", "x"),
        ("=x", "input"),
    ],
)
async def test_the_query_is_strict(client: httpx2.AsyncClient, query: str, field: str) -> None:
    """An unknown, repeated or ill-typed parameter is refused by its name; a number is written as JSON writes it."""
    refused = await client.get(f"/v1/memories?{query}")

    assert problem(refused, 422, "invalid_input")["details"]["field"] == field


async def test_the_query_has_types(client: httpx2.AsyncClient) -> None:
    """Numbers, truth values and lists arrive as such."""
    memory = await write(client, tags=["a", "b"])
    await client.delete(f"/v1/memories/{memory}")

    found = await client.get("/v1/memories?deleted=true&limit=5&tags=a&tags=b&scope=user")

    assert [item["id"] for item in found.json()["items"]] == [memory]


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("GET", "/v1/memories", {"limit": 1}, "limit"),
        ("GET", "/v1/memories", {"other": 1}, "other"),
        ("POST", "/v1/memories/x/patch", {"id": "y", "old_string": "a", "new_string": "b"}, "id"),
        ("DELETE", "/v1/memories/x", {"version": 1}, "version"),
        ("POST", "/v1/memories?content=x", {"content": "y"}, "content"),
        ("POST", "/v1/memories", {"content": "y", "principal": "bob"}, "principal"),
        ("POST", "/v1/memories", {"content": "y", "tags": None, "Content": "z"}, "tags"),
    ],
)
async def test_each_field_has_its_place(
    client: httpx2.AsyncClient, method: str, path: str, body: dict[str, Any], field: str
) -> None:
    """A field elsewhere than in its place is refused, as is one that the operation does not have."""
    refused = await client.request(method, path, json=body)

    assert problem(refused, 422, "invalid_input")["details"]["field"] == field


@pytest.mark.parametrize(
    "body", [b"{", b"", b"nonsense", b"{'a': 1}", b"[" * 100_000, b'{"content": 1' + b"0" * 5_000 + b"}"]
)
async def test_a_body_that_is_not_json(client: httpx2.AsyncClient, body: bytes) -> None:
    """400 where it cannot be parsed, and never 500; without a body its required fields are missing."""
    refused = await client.post("/v1/memories", content=body, headers=JSON)

    if body:
        problem(refused, 400, "invalid_input")
    else:
        assert problem(refused, 422, "invalid_input")["details"]["field"] == "content"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"nonsense", "not JSON from character 1 on; send a JSON object"),
        (b'{"content": "c",}', "not JSON from character 17 on; send a JSON object"),
        (b"[" * 100_000, "nested too deeply to be read; flatten it to the 64 levels"),
        (b'{"content": 1' + b"0" * 5_000 + b"}", "a number of more than 4,300 digits; send a smaller one"),
        (codecs.BOM_UTF8 + b'{"content": "c"}', "begins with a byte order mark; send UTF-8 without one"),
        (codecs.BOM_UTF16_LE + '{"content": "c"}'.encode("utf-16-le"), "not UTF-8; encode the text as UTF-8"),
    ],
)
async def test_a_body_that_cannot_be_read_says_why(client: httpx2.AsyncClient, body: bytes, why: str) -> None:
    """400 in words for what is wrong with it, the limit and what to do."""
    refused = problem(await client.post("/v1/memories", content=body, headers=JSON), 400, "invalid_input")

    assert refused["details"] == {"field": "body"}
    assert why in refused["detail"]


async def test_the_levels_of_a_value_are_those_of_the_core(connect: Open) -> None:
    """What is read and is too deep all the same is refused by the limit that the body's refusal names."""
    async with connect("keeper", agent=ADA) as client:
        answers = [
            await client.put("/v1/agent/sections/dedup_state", content=nested(levels), headers=JSON)
            for levels in (DEPTH_MAX, DEPTH_MAX + 1)
        ]

    assert answers[0].status_code == 200
    assert f"nested more than {DEPTH_MAX} levels" in problem(answers[1], 422, "invalid_input")["detail"]


def nested(levels: int) -> str:
    """A section's body whose value has so many levels below it."""
    return '{"value": {"a": ' + "[" * (levels - 1) + "1" + "]" * (levels - 1) + "}}"


@pytest.mark.parametrize(
    ("query", "remedy"),
    [
        ("limit=abc", "limit=3"),
        ("limit=true", "limit=3"),
        ("limit=", "limit=3"),
        ("limit=%221%22", "limit=3"),
        ("limit=" + "9" * 5_000, "at most 20 digits"),
        ("limit=1.5", "limit=3"),
        ("limit=0", "send 1 or more"),
        ("deleted=1", "deleted=true or deleted=false"),
        ("deleted=yes", "deleted=true or deleted=false"),
    ],
)
async def test_a_query_is_refused_in_its_own_words(client: httpx2.AsyncClient, query: str, remedy: str) -> None:
    """Which know no quotes: what is to be written there is said as it would be written."""
    detail = problem(await client.get(f"/v1/memories?{query}"), 422, "invalid_input")["detail"]

    assert remedy in detail
    assert "quotes" not in detail


def test_every_type_of_a_query_is_read() -> None:
    """Those that are told apart when a text is read, and refused in a query's words, are all that there are."""
    types = {kind for route in ROUTES for field in route.at("query") for kind in route.types(field)}

    assert types <= {"string", "integer", "boolean", "array"}


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('{"content": "a", "content": "b"}', "content"),
        ('{"content": "a", "\\u0063ontent": "a"}', "content"),
        ('{"content": "a", "x": {"y": [{"z": 1, "z": 1}]}}', "z"),
        ('{"content": "a", "a\\u0000": 1, "a\\u0000": 1}', "a\\u0000"),
    ],
)
async def test_a_member_is_said_once(client: httpx2.AsyncClient, body: str, name: str) -> None:
    """Two members of one name are refused at any depth, since which one counts differs by reader."""
    refused = problem(await client.post("/v1/memories", content=body, headers=JSON), 422, "invalid_input")

    assert refused["details"]["field"] == "body"
    assert f'"{name}" more than once' in refused["detail"]


async def test_bytes_that_are_no_utf8_are_told_as_such(connect: Open) -> None:
    """In a body, a path, a query and a key: the place is named, and UTF-8 is what is asked for."""
    async with connect("platform", platform=True) as client:
        body = await client.post("/v1/memories", content=b'{"content": "caf\xe9"}', headers=JSON)
        path = await client.put("/v1/agents/caf%E9/1", json={"pods": []})
        query = await client.get("/v1/memories?project=caf%E9")
        name = await client.get("/v1/memories?caf%E9=1")
        key = await client.post("/v1/memories", json={"content": "c"}, headers=[(b"idempotency-key", b"caf\xe9")])

    for refused, status, field in (
        (body, 400, "body"),
        (path, 422, "name"),
        (query, 422, "project"),
        (name, 422, "query"),
        (key, 422, "Idempotency-Key"),
    ):
        found = problem(refused, status, "invalid_input")
        assert found["details"]["field"] == field
        assert "not UTF-8" in found["detail"]


async def test_a_part_of_the_path_has_the_name_that_the_path_gives_it(connect: Open) -> None:
    """A refusal by the engine of an agent's name or instance names the segment."""
    async with connect("platform", platform=True) as client:
        for path, field in (("a%00/1", "name"), ("a/1%00", "instance")):
            refused = problem(await client.put(f"/v1/agents/{path}", json={"pods": []}), 422, "invalid_input")
            assert refused["details"]["field"] == field
            assert refused["detail"].startswith(f"{field}: it has other characters")


async def test_a_parameter_without_a_name_is_told_as_such(client: httpx2.AsyncClient) -> None:
    """``?=x`` is refused in words that say what is wrong."""
    refused = problem(await client.get("/v1/memories?=x"), 422, "invalid_input")

    assert "a parameter without a name" in refused["detail"]


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"1", b"null"])
async def test_a_body_that_is_no_object(client: httpx2.AsyncClient, body: bytes) -> None:
    """JSON that is no object is refused as such."""
    refused = await client.post("/v1/memories", content=body, headers=JSON)

    assert problem(refused, 422, "invalid_input")["details"]["field"] == "body"


@pytest.mark.parametrize(
    ("method", "media", "status"),
    [
        ("POST", "application/json", 201),
        ("POST", "application/json; charset=utf-8", 201),
        ("POST", "APPLICATION/JSON", 201),
        ("POST", "application/merge-patch+json", 415),
        ("POST", "text/plain", 415),
        ("POST", "application/x-www-form-urlencoded", 415),
        ("POST", "", 415),
        ("PATCH", "application/merge-patch+json", 200),
        ("PATCH", "application/json", 200),
        ("PATCH", "application/json-patch+json", 415),
    ],
)
async def test_a_body_is_json_by_its_name(client: httpx2.AsyncClient, method: str, media: str, status: int) -> None:
    """What a page can send without being asked (a form, plain text) is no JSON, whatever it holds."""
    path = f"/v1/memories/{await write(client)}" if method == "PATCH" else "/v1/memories"

    sent = await client.request(method, path, content=b'{"content": "c"}', headers={"content-type": media})

    assert sent.status_code == status
    if status == 415:
        problem(sent, 415, "invalid_input")
        assert "application/json" in sent.headers["accept-patch" if method == "PATCH" else "accept-post"]


async def test_a_compressed_body_is_refused(client: httpx2.AsyncClient) -> None:
    """A body is taken as it is, so its limit is that of what is read."""
    refused = await client.post("/v1/memories", content=b"x", headers={**JSON, "content-encoding": "gzip"})

    problem(refused, 415, "invalid_input")


async def test_agents_and_the_platform_have_their_own(connect: Open) -> None:
    """A caller that an operation is not for is refused with 403, whatever its input."""
    async with connect() as client:
        for method, path in (
            ("POST", "/v1/agent/events/claim"),
            ("PUT", "/v1/agents/ada/1"),
            ("GET", "/v1/agent/events"),
        ):
            problem(await client.request(method, path), 403, "access_denied")


async def test_an_event_goes_its_way(connect: Open) -> None:
    """The platform enqueues, the agent claims and acknowledges."""
    bea = Agent(name="bea", instance="1")
    async with connect("platform", platform=True) as platform, connect("keeper", agent=bea) as agent:
        enqueued = await platform.post("/v1/agents/bea/1/events", json={"payload": {"content": "hi"}})
        (delivery,) = (await agent.post("/v1/agent/events/claim", json={})).json()["items"]
        acked = await agent.post(f"/v1/agent/events/{delivery['id']}/ack", json={"token": delivery["token"]})

    assert (enqueued.status_code, delivery["id"]) == (201, enqueued.json()["id"])
    assert acked.json()["outcome"] == "acknowledged"


async def test_who_lost_the_access_is_told_of_a_new_project(connect: Open) -> None:
    """A write by the key of a project that is shared no longer makes one of its writer's own, and says so."""
    path = f"/v1/projects/{quote('acme/web', safe='')}"
    async with connect("bob", "web-team") as bob:
        async with connect() as alice:
            shared = (await alice.put(path)).json()["project"]["id"]
            await alice.put(f"{path}/shares/web-team", json={"access": "rw"})
            before = (await bob.post("/v1/memories", json={"content": "c", "project": "acme/web"})).json()
            await alice.delete(f"{path}/shares/web-team")
        after = (await bob.post("/v1/memories", json={"content": "c", "project": "acme/web"})).json()
        again = (await bob.post("/v1/memories", json={"content": "c", "project": "acme/web"})).json()
        (own,) = (await bob.get("/v1/projects")).json()["items"]

    assert [(one["project_created"], one["project_id"]) for one in (before, after, again)] == [
        (False, shared),
        (True, own["id"]),
        (False, own["id"]),
    ]


async def test_the_history_of_a_project_is_read_in_pages(connect: Open) -> None:
    """Who did what, through which surface; with which group only its owner is told."""
    path = f"/v1/projects/{quote('acme/web', safe='')}"
    async with connect() as alice, connect("bob", "web-team") as bob:
        await alice.put(path)
        await alice.put(f"{path}/shares/web-team", json={"access": "ro"})
        first = await alice.get(f"{path}/history", params={"limit": 1})
        second = await alice.get(first.links["next"]["url"])
        told = (await bob.get(f"{path}/history")).json()["items"]
        hidden = await bob.get(f"{path}x/history")

    (shared,), (registered,) = first.json()["items"], second.json()["items"]
    assert [(one["action"], one["actor"], one["surface"]) for one in (shared, registered)] == [
        ("project.share", "alice", "http"),
        ("project.register", "alice", "http"),
    ]
    assert shared["details"] == {"group": "web-team", "access": "ro"}
    assert "link" not in second.headers
    assert told == [{**one, "details": None} for one in (shared, registered)]
    problem(hidden, 404, "unknown_project")


async def test_the_platform_reads_what_was_done_with_tokens(engine: Engine, connect: Open) -> None:
    """And nobody else."""
    tokens = AuditedTokens(engine.storage, "olga", "cli")
    _, token = await tokens.create("ci", frozenset(), ("read",), None)
    await tokens.revoke(token.id)
    async with connect("runtime", platform=True) as platform, connect() as alice:
        entries = (await platform.get("/v1/tokens/history")).json()["items"]
        refused = await alice.get("/v1/tokens/history")

    assert {(one["action"], one["actor"], one["details"]["token"]) for one in entries} == {
        ("token.create", "olga", token.id),
        ("token.revoke", "olga", token.id),
    }
    problem(refused, 403, "access_denied")


async def test_a_storage_that_cannot_read_trails_says_so(serve: Open) -> None:
    """501 where its plugin is of contract 1.1, for whoever might read the trail; what may not be read stays hidden."""

    class Older:
        def __init__(self, storage: ReferenceStorage) -> None:
            self._storage = storage

        def __getattr__(self, name: str) -> Any:
            if name == "trail":
                raise AttributeError(name)
            return getattr(self._storage, name)

    alice = Callers(CallContext(principal=Principal(user="alice", platform=True)))
    storage = cast(ReferenceStorage, Older(ReferenceStorage()))
    async with Engine(storage, None, background=False) as engine, serve(engine, alice) as client:
        await client.put("/v1/projects/web")
        refused = [await client.get(f"/v1/{path}/history") for path in ("projects/web", "tokens")]
        hidden = await client.get("/v1/projects/other/history")

    for one in refused:
        problem(one, 501, "capability_not_supported")
    problem(hidden, 404, "unknown_project")


async def test_what_is_wrong_with_the_storage_is_in_the_log_alone(
    serve: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """A caller is told what to do, and an id by which whoever runs the server finds the cause."""

    class Away(ReferenceStorage):
        async def list_projects(self, *_: Any, **__: Any) -> Any:
            raise StorageUnavailable("/var/lib/memories.db cannot grow, its disk is full; free space there.")

    alice = Callers(CallContext(principal=Principal(user="alice")))
    async with Engine(Away(), None, background=False) as engine, serve(engine, alice) as client:
        answer = await client.get("/v1/projects")
        refused = problem(answer, 503, "storage_unavailable")

    assert answer.headers["retry-after"] == str(UNAVAILABLE_SECONDS)
    assert "/var" not in json.dumps(refused)
    (record,) = [one for one in caplog.records if one.name == "muniment.serving.incidents"]
    assert "/var/lib/memories.db" in record.getMessage()
    assert refused["details"]["id"] in record.getMessage()
