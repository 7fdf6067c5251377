"""Lines and protocol messages: one JSON-RPC message a line, UTF-8. Who reads and writes lines is ``wire``'s.

Strings that UTF-8 or JSON cannot carry whole (a lone surrogate, a stray byte) are let through as surrogates:
the operations refuse them naming the field, which a message that fails to parse could not.
"""

from __future__ import annotations

import json
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


class BadFrame(Exception):
    """The line is no protocol message. ``answer`` is the error to send, None where nobody asked."""

    def __init__(self, answer: JSONRPCError | None) -> None:
        super().__init__()
        self.answer = answer


def decode(line: bytes) -> JSONRPCMessage:
    """The message on ``line``. Raises BadFrame."""
    try:
        value: object = json.loads(line.decode("utf-8", "surrogateescape"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadFrame(_error(None, PARSE_ERROR, "The line is not JSON.")) from None
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
    identifier: object = None
    if isinstance(value, dict):
        message = cast("dict[str, Any]", value)
        if "method" not in message:
            return None
        identifier = message.get("id")
    known = identifier if isinstance(identifier, int | str) and not isinstance(identifier, bool) else None
    return _error(known, INVALID_REQUEST, "The line is not a JSON-RPC 2.0 message.")


def _error(identifier: int | str | None, code: int, message: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=identifier, error=ErrorData(code=code, message=message))


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
