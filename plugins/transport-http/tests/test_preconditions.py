"""``If-Match`` and ``If-None-Match`` at every route: what compares a version keeps them, all else refuses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest

from muniment.engine import Engine
from muniment.errors import VersionConflict
from muniment.models import Agent, CallContext
from muniment.operations import OPERATIONS
from muniment_transport_http import openapi
from muniment_transport_http.conformance_client import asked
from muniment_transport_http.examples import EXAMPLES
from muniment_transport_http.routes import ROUTES, STREAM_PATH, Route

Open = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]
Payload = Mapping[str, Any]
Prepare = Callable[[httpx2.AsyncClient], Awaitable[Payload]]

ADA = Agent(name="ada", instance="1")
JSON = {"content-type": "application/json"}
DOCUMENT = openapi.document(authenticated=True)


async def send(client: httpx2.AsyncClient, operation: str, payload: Payload, **headers: str) -> httpx2.Response:
    """Call an operation with headers, ``_`` in their names for a hyphen."""
    request = asked(operation, payload)
    fields = request.headers | {name.replace("_", "-"): value for name, value in headers.items()}
    content = request.content()
    fields |= {} if content is None else JSON
    return await client.request(request.route.method, request.target, content=content, headers=fields)


async def done(client: httpx2.AsyncClient, operation: str, payload: Payload) -> dict[str, Any]:
    """The answer of a call that succeeds."""
    answer = await send(client, operation, payload)
    assert answer.is_success, answer.text
    return answer.json()


async def a_memory(client: httpx2.AsyncClient) -> str:
    """The id of one at version 2."""
    written = await done(client, "memory.write", {"content": "first line"})
    await done(client, "memory.update", {"id": written["id"], "tags": ["a"]})
    return str(written["id"])


async def to_get(client: httpx2.AsyncClient) -> Payload:
    return {"id": await a_memory(client)}


async def to_update(client: httpx2.AsyncClient) -> Payload:
    return {"id": await a_memory(client), "tags": ["b"]}


async def to_patch(client: httpx2.AsyncClient) -> Payload:
    return {"id": await a_memory(client), "old_string": "first", "new_string": "1st"}


async def to_restore(client: httpx2.AsyncClient) -> Payload:
    written = await done(client, "memory.write", {"content": "first line"})
    await done(client, "memory.delete", {"id": written["id"]})
    return {"id": written["id"]}


async def to_share(client: httpx2.AsyncClient) -> Payload:
    await done(client, "project.identify", {"project": "web"})
    await done(client, "project.share", {"project": "web", "group": "team", "access": "ro"})
    return {"project": "web", "group": "team", "access": "rw"}


async def to_unshare(client: httpx2.AsyncClient) -> Payload:
    return {name: value for name, value in (await to_share(client)).items() if name != "access"}


async def to_save(client: httpx2.AsyncClient) -> Payload:
    for value in ("kind", "brief"):
        await done(client, "section.save", {"section": "soul", "value": value})
    return {"section": "soul", "value": "kind, and brief"}


async def to_log_cycle(client: httpx2.AsyncClient) -> Payload:
    for text in ("one", "two"):
        await done(client, "section.log_cycle", {"text": text})
    return {"text": "three"}


PREPARED: Mapping[str, Prepare] = {
    "memory.get": to_get,
    "memory.update": to_update,
    "memory.patch": to_patch,
    "memory.delete": to_get,
    "memory.restore": to_restore,
    "project.share": to_share,
    "project.unshare": to_unshare,
    "section.save": to_save,
    "section.log_cycle": to_log_cycle,
}
"""What makes the thing of each operation that compares a version, at version 2; and the input of a call."""

CHANGES = sorted(set(PREPARED) - {"memory.get"})

NEXT: Mapping[str, tuple[str, Payload]] = {
    "memory.write": ("memory.update", {"tags": ["c"]}),
    "memory.get": ("memory.update", {"tags": ["c"]}),
    "memory.update": ("memory.delete", {}),
    "memory.patch": ("memory.delete", {}),
    "memory.delete": ("memory.restore", {}),
    "memory.restore": ("memory.delete", {}),
    "project.share": ("project.unshare", {}),
    "project.unshare": ("project.share", {"access": "ro"}),
    "section.save": ("section.save", {"value": "terse"}),
    "section.log_cycle": ("section.log_cycle", {}),
}
"""What is called on the same thing after each operation whose reply has a tag, with the input that is its own."""


def stale(response: httpx2.Response, current: int) -> None:
    """A failed precondition that says the version that is current."""
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert (response.status_code, body["status"], body["code"]) == (412, 412, "version_conflict")
    assert body["details"] == {"current_version": current}


def refused(response: httpx2.Response, header: str) -> None:
    """A refusal that names a header and says what to do."""
    assert response.status_code == 422
    body = response.json()
    assert (body["code"], body["details"]) == ("invalid_input", {"field": header})
    assert "; " in body["detail"]


def test_every_operation_that_takes_a_version_is_judged() -> None:
    """And what else can be read by its version; a reply has a tag exactly where one is compared later."""
    compare = {route.operation.name for route in ROUTES if route.compares}

    assert compare == set(PREPARED)
    assert compare >= {name for name, one in OPERATIONS.items() if "version" in one.input.model_fields}
    assert {route.operation.name for route in ROUTES if route.tagged} == compare | {"memory.write"} == set(NEXT)


@pytest.mark.parametrize("route", [one for one in ROUTES if not one.compares], ids=lambda route: route.operation.name)
async def test_what_compares_no_version_takes_no_precondition(client: httpx2.AsyncClient, route: Route) -> None:
    """It is refused by its name and never passed over, since its sender counts on it."""
    name = route.operation.name
    for value in ('"v1"', "*", "v1", ""):
        refused(await send(client, name, EXAMPLES[name].input, If_Match=value), "If-Match")
        refused(await send(client, name, EXAMPLES[name].input, If_None_Match=value), "If-None-Match")


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match"])
async def test_nor_do_the_stream_and_the_document(connect: Open, header: str) -> None:
    """Which are no operations."""
    async with connect("keeper", agent=ADA) as client:
        for path in (STREAM_PATH, "/openapi.json"):
            refused(await client.get(path, headers={header: "*"}), header)


@pytest.mark.parametrize("operation", PREPARED)
async def test_if_match_is_kept(connect: Open, operation: str) -> None:
    """412 with the version that is current where it is another one, and nothing changes; the same one passes."""
    async with connect("keeper", agent=ADA) as client:
        payload = await PREPARED[operation](client)
        for tag in ('"v1"', '"v3"', 'W/"v2"', '"2"'):
            stale(await send(client, operation, payload, If_Match=tag), 2)
        passed = await send(client, operation, payload, If_Match='"v2"')

    assert passed.status_code == 200


@pytest.mark.parametrize("operation", PREPARED)
async def test_a_star_matches_whatever_is_there(connect: Open, operation: str) -> None:
    """``If-Match: *`` asks for a thing, and for no version."""
    async with connect("keeper", agent=ADA) as client:
        payload = await PREPARED[operation](client)

        assert (await send(client, operation, payload, If_Match="*")).status_code == 200


@pytest.mark.parametrize("operation", CHANGES)
async def test_a_version_that_if_none_match_lists_is_not_changed(connect: Open, operation: str) -> None:
    """412 with that version, whether it is strong, weak or one of several; nothing changes."""
    async with connect("keeper", agent=ADA) as client:
        payload = await PREPARED[operation](client)
        for tags in ('"v2"', 'W/"v2"', '"v7" , "v2"', '"v7",,W/"v2",', "*"):
            stale(await send(client, operation, payload, If_None_Match=tags), 2)
        passed = await send(client, operation, payload, If_Match='"v2"')

    assert passed.status_code == 200


@pytest.mark.parametrize("operation", PREPARED)
async def test_a_version_that_if_none_match_does_not_list_passes(connect: Open, operation: str) -> None:
    """Also one whose number begins with the same digits, and with an ``If-Match`` that holds."""
    async with connect("keeper", agent=ADA) as client:
        payload = await PREPARED[operation](client)
        stale(await send(client, operation, payload, If_None_Match='"v1", "v22"', If_Match='"v1"'), 2)
        passed = await send(client, operation, payload, If_None_Match='"v1", "v22"', If_Match='"v2"')

    assert passed.status_code == 200


@pytest.mark.parametrize("operation", CHANGES)
async def test_if_none_match_alone_passes_too(connect: Open, operation: str) -> None:
    """The change is made of the version that is current, whichever that is."""
    async with connect("keeper", agent=ADA) as client:
        payload = await PREPARED[operation](client)
        passed = await send(client, operation, payload, If_None_Match='"v1"')

    assert (passed.status_code, passed.headers["etag"]) == (200, '"v3"')


@pytest.mark.parametrize("operation", CHANGES)
async def test_a_stale_version_stays_a_conflict(connect: Open, operation: str) -> None:
    """409 for a field's, also beside an ``If-None-Match`` that holds, or an ``If-Match`` that names none."""
    async with connect("keeper", agent=ADA) as client:
        payload = {**(await PREPARED[operation](client)), "version": 1}
        for headers in ({"If_None_Match": '"v1"'}, {"If_Match": "*"}, {}):
            answer = await send(client, operation, payload, **headers)
            assert (answer.status_code, answer.json()["details"]) == (409, {"current_version": 2})


@pytest.mark.parametrize("operation", NEXT)
async def test_a_reply_has_the_tag_that_the_next_change_is_compared_with(connect: Open, operation: str) -> None:
    """``ETag`` is the version of the body, and as ``If-Match`` it passes once."""
    after, own = NEXT[operation]
    async with connect("keeper", agent=ADA) as client:
        payload = await PREPARED[operation](client) if operation in PREPARED else {"content": "c"}
        first = await send(client, operation, payload)
        body = first.json()
        tag = first.headers["etag"]
        thing = {"id": body["id"]} if "id" in body and operation.startswith("memory.") else payload
        fields = OPERATIONS[after].input.model_fields
        payload = {name: value for name, value in {**thing, **own}.items() if name in fields}
        passed = await send(client, after, payload, If_Match=tag)
        repeated = await send(client, "memory.restore" if after == "memory.delete" else after, payload, If_Match=tag)

    (version,) = body["versions"].values() if "versions" in body else (body["version"],)
    assert tag == f'"v{version}"'
    assert passed.status_code == 200, passed.text
    assert repeated.status_code == 412 or after in ("memory.delete", "memory.restore")


async def test_what_is_no_list_of_tags_is_refused(client: httpx2.AsyncClient) -> None:
    """Read or change, it is no precondition that could hold or fail."""
    payload = {"id": await a_memory(client)}
    for value in ("v1", "", '"v1', '*, "v1"', '"v1" "v2"', "W/v1"):
        for operation in ("memory.get", "memory.delete"):
            refused(await send(client, operation, payload, If_None_Match=value), "If-None-Match")

    assert (await send(client, "memory.get", payload)).status_code == 200


@pytest.mark.parametrize("headers", [{"If_Match": '"v1"'}, {"If_Match": "*"}, {"If_None_Match": "*"}])
async def test_what_is_not_there_is_not_found_first(client: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    """A precondition is compared only where the call would succeed without it (RFC 9110, section 13.2.1)."""
    for operation in ("memory.get", "memory.update", "memory.delete", "project.unshare"):
        payload = {name: value for name, value in EXAMPLES[operation].input.items() if name != "version"}
        assert (await send(client, operation, payload, **headers)).status_code == 404


async def test_a_read_whose_tag_is_stale_says_so_before_it_says_nothing_is_new(client: httpx2.AsyncClient) -> None:
    """``If-Match`` is looked at first (RFC 9110, section 13.2.2); HEAD is answered alike."""
    payload = {"id": await a_memory(client)}
    path = asked("memory.get", payload).path
    stale(await send(client, "memory.get", payload, If_Match='"v1"', If_None_Match='"v2"'), 2)
    both = await send(client, "memory.get", payload, If_Match='"v2"', If_None_Match='"v2"')
    head = await client.head(path, headers={"if-match": '"v1"'})

    assert (both.status_code, both.headers["etag"], both.content) == (304, '"v2"', b"")
    assert (head.status_code, head.content) == (412, b"")


async def test_a_section_is_made_only_if_it_was_never_written(connect: Open) -> None:
    """By ``If-None-Match: *``, and once; before that no version of it matches ``If-Match: *``."""
    payload = {"section": "soul", "value": "kind"}
    async with connect("keeper", agent=ADA) as client:
        stale(await send(client, "section.save", payload, If_Match="*"), 0)
        stale(await send(client, "section.save", payload, If_None_Match='"v0"'), 0)
        made = await send(client, "section.save", payload, If_None_Match="*")
        stale(await send(client, "section.save", payload, If_None_Match="*"), 1)

    assert (made.status_code, made.headers["etag"]) == (200, '"v1"')


@pytest.mark.parametrize(("listed", "status"), [('"v1"', 200), ('"v3"', 412)])
async def test_who_is_faster_counts(
    engine: Engine, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, listed: str, status: int
) -> None:
    """A version that came between looking and changing is compared as well."""
    payload = await to_update(client)
    call = engine.call
    between = [1]

    async def raced(name: str, sent: Mapping[str, Any], context: CallContext) -> Any:
        try:
            return await call(name, sent, context)
        except VersionConflict:
            if between:
                between.pop()
                await call("memory.update", {"id": payload["id"], "tags": ["faster"]}, context)
            raise

    monkeypatch.setattr(engine, "call", raced)
    answer = await send(client, "memory.update", payload, If_None_Match=listed)
    tags = (await done(client, "memory.get", {"id": payload["id"]}))["tags"]

    assert answer.status_code == status
    assert tags == (["b"] if status == 200 else ["faster"])


async def test_it_does_not_go_on_for_ever(
    engine: Engine, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where somebody is always faster the last conflict is the answer."""
    payload = await to_update(client)
    calls = [0]

    async def conflicting(name: str, sent: Mapping[str, Any], context: CallContext) -> Any:
        calls[0] += 1
        raise VersionConflict(calls[0])

    monkeypatch.setattr(engine, "call", conflicting)
    answer = await send(client, "memory.update", payload, If_None_Match='"v999"')

    assert (answer.status_code, answer.json()["code"]) == (409, "version_conflict")
    assert calls[0] < 20


async def test_an_idempotency_key_goes_with_if_match_alone(client: httpx2.AsyncClient) -> None:
    """A version that the server looks up would make of a retry another request."""
    payload = await to_patch(client)
    for tags in ("*", '"v1"'):
        refused(
            await send(client, "memory.patch", {**payload, "idempotency_key": "k"}, If_None_Match=tags),
            "If-None-Match",
        )
    keyed = {**payload, "idempotency_key": "k"}
    first, again = [await send(client, "memory.patch", keyed, If_Match='"v2"') for _ in range(2)]

    assert first.json() == again.json()
    assert (first.status_code, again.headers["etag"]) == (200, '"v3"')


async def test_another_if_match_under_the_same_key_is_another_request(client: httpx2.AsyncClient) -> None:
    """The version is a part of it, wherever it is said."""
    payload = {**(await to_patch(client)), "idempotency_key": "k"}
    await send(client, "memory.patch", payload, If_Match='"v2"')
    answer = await send(client, "memory.patch", payload, If_Match='"v3"')

    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_conflict")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation.name)
def test_the_document_says_it(route: Route) -> None:
    """Both headers and 412 where a version is compared, 304 where it is read, ``ETag`` where a reply has one."""
    described = DOCUMENT["paths"][route.path][route.method.lower()]
    named = {one["$ref"].rpartition("/")[2] for one in described["parameters"] if "$ref" in one}

    assert named & {"If-Match", "If-None-Match"} == ({"If-Match", "If-None-Match"} if route.compares else set())
    assert ("412" in described["responses"]) == route.compares
    assert ("304" in described["responses"]) == (route.compares and route.method == "GET")
    for status in route.statuses:
        assert ("ETag" in described["responses"][str(status)]["headers"]) == route.tagged
