"""Lines and protocol messages: one JSON-RPC message a line, UTF-8. Who reads and writes lines is ``wire``'s.

Strings that UTF-8 or JSON cannot carry whole (a lone surrogate, a stray byte) are let through, over stdio as surrogates
and over HTTP, where the SDK reads the message, as NUL: the operations refuse both naming the field, which a message
that fails to parse could not. The same goes for numbers without an end, which JSON has no words for.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any, cast

from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from muniment.errors import InvalidInput
from muniment.serving import members

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class BadFrame(Exception):
    """The line is no protocol message. ``answer`` is the error to send, None where nobody asked."""

    def __init__(self, answer: JSONRPCError | None) -> None:
        super().__init__()
        self.answer = answer


def decode(line: bytes) -> JSONRPCMessage:
    """The message on ``line``. Raises BadFrame."""
    text = line.decode("utf-8", "surrogateescape")
    try:
        value = members.parsed(text)
    except (ValueError, RecursionError):
        raise BadFrame(_error(None, PARSE_ERROR, "The line is not JSON.")) from None
    except InvalidInput as refusal:
        asked = _id_of(json.loads(text))
        raise BadFrame(_error(asked, INVALID_REQUEST, refusal.message, refusal.body())) from None
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValidationError:
        raise BadFrame(_invalid(value)) from None


def encode(message: JSONRPCMessage) -> bytes:
    """``message`` as one line, its end included."""
    try:
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
    except PydanticSerializationError:
        text = json.dumps(message.model_dump(by_alias=True, exclude_unset=True), separators=(",", ":"))
    return text.encode() + b"\n"


def repaired(body: bytes) -> bytes:
    """``body`` with NUL in its strings for what UTF-8 cannot carry; as it is where that does not help."""
    try:
        if not _ESCAPED_SURROGATE.search(body.decode()):
            return body
    except UnicodeDecodeError:
        pass
    try:
        value: object = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return body
    return _SURROGATE.sub(r"\\u0000", json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def check_members(body: bytes) -> None:
    """Raises InvalidInput for a member that is sent twice; what is no JSON is left to the SDK."""
    with suppress(ValueError, RecursionError):
        members.parsed(body.decode("utf-8", "surrogateescape"))


def request_key(message: JSONRPCMessage) -> str | None:
    """What a request and its answer have in common; None for a notification."""
    identifier = getattr(message, "id", None)
    return None if identifier is None else str(identifier)


def cancelled_key(message: JSONRPCMessage) -> str | None:
    """The key of the request that ``message`` cancels, if it cancels one."""
    if isinstance(message, JSONRPCRequest) or getattr(message, "method", "") != "notifications/cancelled":
        return None
    params = cast("dict[str, Any] | None", getattr(message, "params", None)) or {}
    identifier = params.get("requestId")
    return None if identifier is None else str(identifier)


def _invalid(value: object) -> JSONRPCError | None:
    if isinstance(value, dict) and "method" not in value:
        return None
    return _error(_id_of(cast("object", value)), INVALID_REQUEST, "The line is not a JSON-RPC 2.0 message.")


def _id_of(value: object) -> int | str | None:
    """The id of what may be a message, if it has one."""
    identifier = cast("dict[str, Any]", value).get("id") if isinstance(value, dict) else None
    return identifier if isinstance(identifier, int | str) and not isinstance(identifier, bool) else None


def _error(identifier: int | str | None, code: int, message: str, data: object = None) -> JSONRPCError:
    said = ErrorData(code=code, message=message) if data is None else ErrorData(code=code, message=message, data=data)
    return JSONRPCError(jsonrpc="2.0", id=identifier, error=said)
