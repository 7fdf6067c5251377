"""The headers that requests and replies carry, as the OpenAPI document describes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from muniment import limits
from muniment_transport_http.routes import Schema

Document = dict[str, Any]


def parameters(*names: str) -> Iterator[Document]:
    """References to the headers that a request may carry."""
    return ({"$ref": f"#/components/parameters/{name}"} for name in names)


def of(*names: str) -> Document:
    """The headers that a reply carries, as references; ``NAME?`` is one that it may carry."""
    return {name.rstrip("?"): {"$ref": f"#/components/headers/{_COMPONENTS.get(name, name)}"} for name in names}


MAY_CHALLENGE = "WWW-Authenticate?"
_COMPONENTS = {MAY_CHALLENGE: "Challenge"}
"""What a header is called among the components where that is not its name."""


def _sent(name: str, description: str, schema: Schema, example: str) -> Document:
    return {"name": name, "in": "header", "description": description, "schema": schema, "example": example}


_KEY_SCHEMA: Schema = {"type": "string", "minLength": 1, "maxLength": limits.IDEMPOTENCY_KEY_MAX}

PARAMETERS: Document = {
    "X-Request-ID": _sent(
        "X-Request-ID",
        "What this request is called in the log; goes back with the reply. One that is not 1 to 128 of A-Z, a-z, 0-9 "
        "and . _ : / + = - is replaced.",
        {"type": "string"},
        "c0ffee-481",
    ),
    "If-Match": _sent(
        "If-Match",
        "The version that the request is for, or `*` for any; 412 where another one is current. A change may say it as "
        "`version` instead, and is then refused with 409.",
        {"type": "string"},
        '"v3"',
    ),
    "If-None-Match": _sent(
        "If-None-Match",
        "The versions that the request is not for, or `*` for all that there are: where one of them is current, a read "
        "is answered with 304 and a change refused with 412. With `*` a section is written only if it never was. Not "
        "together with an idempotency key.",
        {"type": "string"},
        '"v3"',
    ),
    "Idempotency-Key": _sent(
        "Idempotency-Key",
        "The same key and request within 24 hours give the first reply again, and change nothing. Instead of "
        "`idempotency_key`, which may hold any text.",
        _KEY_SCHEMA,
        "write-481",
    ),
    "Last-Event-ID": _sent(
        "Last-Event-ID",
        "The id of the last event that was seen: what was said by then is not said again at once, what is newer is.",
        {"type": "string"},
        "5f2a90c1-7",
    ),
}

HEADERS: Document = {
    "X-Request-ID": {
        "description": "What this request is called in the log.",
        "required": True,
        "schema": {"type": "string"},
    },
    "ETag": {
        "description": 'The version, such as "v3", which `If-Match` is compared with.',
        "required": True,
        "schema": {"type": "string", "pattern": '^"v[0-9]+"$'},
    },
    "Location": {"description": "Where the memory is.", "required": True, "schema": {"type": "string"}},
    "Link": {
        "description": 'Where the next page is, with rel="next"; there is none on the last.',
        "schema": {"type": "string"},
    },
    "Retry-After": {
        "description": "How many seconds to wait.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[1-9][0-9]*$"},
    },
    "WWW-Authenticate": {"description": "How to sign in.", "required": True, "schema": {"type": "string"}},
    "Challenge": {
        "description": "Which scope to ask for (RFC 6750), where a larger one would do.",
        "schema": {"type": "string"},
    },
}
