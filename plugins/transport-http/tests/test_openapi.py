"""The OpenAPI document: valid, complete, and of what is served."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from muniment.operations import OPERATIONS
from muniment.serving.doorway import UNAVAILABLE_SECONDS
from muniment_transport_http import openapi
from muniment_transport_http.examples import EXAMPLES
from muniment_transport_http.routes import STREAM_PATH

DOCUMENT = openapi.document(authenticated=True)
METHODS = ("get", "put", "post", "patch", "delete")


def operations() -> Iterator[dict[str, Any]]:
    """Every operation of the document."""
    for path in DOCUMENT["paths"].values():
        yield from (path[method] for method in METHODS if method in path)


def resolved(value: dict[str, Any]) -> dict[str, Any]:
    """What a reference stands for."""
    while "$ref" in value:
        found: Any = DOCUMENT
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value


def check(schema: dict[str, Any], instance: Any) -> None:
    """The instance is valid by the schema."""
    validator: Any = Draft202012Validator({**schema, "components": DOCUMENT["components"]})
    validator.validate(instance)


@pytest.mark.parametrize("authenticated", [True, False])
def test_it_is_valid(authenticated: bool) -> None:
    """It is an OpenAPI document, every reference of which leads somewhere."""
    document = openapi.document(authenticated=authenticated)

    validate(document)
    assert document["openapi"].startswith("3.1.")
    assert ("security" in document) == authenticated


def test_it_has_no_keyword_of_a_later_version() -> None:
    """What OpenAPI 3.2 added is not in a document that says 3.1."""
    later = ("itemSchema", "itemEncoding", "prefixEncoding", "additionalOperations", "$self", "nodeType")

    assert not [keyword for keyword in later if re.search(rf'"{re.escape(keyword)}"', json.dumps(DOCUMENT))]


def test_it_has_every_operation() -> None:
    """Each by its name, and the stream beside them."""
    ids = [operation["operationId"] for operation in operations()]

    assert sorted(ids) == sorted([*OPERATIONS, "event.stream"])


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_examples_are_real(name: str) -> None:
    """An operation's example is an input that it takes, and an answer that it may give."""
    operation, example = OPERATIONS[name], EXAMPLES[name]

    assert operation.parse(example.input)
    assert operation.output.model_validate_json(json.dumps(example.answer))


def test_the_examples_fit_their_schemas() -> None:
    """Of each parameter, body and response, in the document itself."""
    for operation in operations():
        for parameter in map(resolved, operation["parameters"]):
            if "example" in parameter:
                check(parameter["schema"], parameter["example"])
        bodies = [resolved(response) for response in operation["responses"].values()]
        for body in (*bodies, operation.get("requestBody", {})):
            for media in body.get("content", {}).values():
                examples = [one["value"] for one in media.get("examples", {}).values()]
                for example in (*examples, *([media["example"]] if "example" in media else [])):
                    check(media.get("schema", {}), example)


def test_every_operation_shows_an_example_of_success_and_of_each_problem() -> None:
    """No response without an example, but 304, which has no body."""
    for operation in operations():
        for status, response in operation["responses"].items():
            for media in resolved(response).get("content", {}).values():
                assert media.get("example") or media.get("examples"), (operation["operationId"], status)
            assert status == "304" or resolved(response)["content"]


def test_parameters_of_the_path_are_those_of_the_template() -> None:
    """Each segment is described, and nothing else is said to be in the path."""
    for path, methods in DOCUMENT["paths"].items():
        for method in METHODS:
            described = {
                one["name"]
                for one in map(resolved, methods.get(method, {}).get("parameters", ()))
                if one["in"] == "path"
            }
            assert method not in methods or described == set(re.findall(r"{(\w+)}", path))


def test_nothing_is_described_that_nothing_speaks_of() -> None:
    """Every component is referred to."""
    text = json.dumps(DOCUMENT)
    for kind in ("schemas", "responses", "parameters", "headers"):
        unused = [name for name in DOCUMENT["components"][kind] if f'"#/components/{kind}/{name}"' not in text]
        assert unused == []


async def test_it_is_served(client: httpx2.AsyncClient) -> None:
    """A server describes itself: without credentials where it asks for none."""
    assert (await client.get("/openapi.json")).json() == openapi.document(authenticated=False)


def test_it_is_printed_without_a_storage() -> None:
    """``muniment openapi`` opens nothing: a storage that is not there does not matter."""
    command = [sys.executable, "-m", "muniment", "openapi", "--storage", "postgresql://nobody@127.0.0.1:1/none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    refused = subprocess.run([*command, "--transport", "mcp"], capture_output=True, text=True, timeout=60, check=False)

    assert json.loads(done.stdout) == DOCUMENT
    assert (refused.returncode, refused.stdout) == (2, "")


def test_the_stream_is_described() -> None:
    """As what it is: server-sent events."""
    assert list(DOCUMENT["paths"][STREAM_PATH]["get"]["responses"]["200"]["content"]) == ["text/event-stream"]


def test_a_challenge_is_described_where_there_may_be_one() -> None:
    """401 has one, 403 may have one, and where nobody is asked for credentials there is none."""
    responses = DOCUMENT["components"]["responses"]
    open_to_all = openapi.document(authenticated=False)["components"]["responses"]

    unauthorized, forbidden = (responses[name]["headers"]["WWW-Authenticate"] for name in ("Unauthorized", "Forbidden"))
    assert resolved(unauthorized)["required"]
    assert not resolved(forbidden).get("required")
    assert "WWW-Authenticate" not in open_to_all["Forbidden"]["headers"]


def test_what_may_be_asked_again_says_when() -> None:
    """Each response that is too many requests or unavailable has ``Retry-After``, in whole seconds."""
    for name in ("TooManyRequests", "ServiceUnavailable"):
        header = resolved(DOCUMENT["components"]["responses"][name]["headers"]["Retry-After"])
        assert header["required"]
        check(header["schema"], str(UNAVAILABLE_SECONDS))
    for operation in operations():
        assert {"429", "503"} <= set(operation["responses"])
