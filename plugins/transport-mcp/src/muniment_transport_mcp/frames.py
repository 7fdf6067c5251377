"""Lines and protocol messages: one JSON-RPC message a line, UTF-8. Who reads and writes lines is ``wire``'s.

Strings that UTF-8 or JSON cannot carry whole (a lone surrogate, a stray byte) are let through, over stdio as surrogates
and over HTTP, where the SDK reads the message, as NUL: the operations refuse both naming the field, which a message
that fails to parse could not. The same goes for numbers without an end, which JSON has no words for.
"""

from __future__ import annotations

import json
import re
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

from muniment.errors import InvalidInput, MunimentError
from muniment.serving import members

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BATCH = "it is a batch, and this protocol has none since its revision 2025-06-18; send each message by itself"


class Unreadable(InvalidInput):
    """What came is no message of the protocol. ``number`` is the protocol's for it, ``asked`` the request's id."""

    http_status = 400

    def __init__(
        self, field: str, problem: str, *, number: int = INVALID_REQUEST, asked: int | str | None = None
    ) -> None:
        self.number = number
        self.asked = asked
        super().__init__(field, problem)


class BadFrame(Exception):
    """The line is no protocol message. ``answer`` is the error to send; None for what answers and does not ask."""

    def __init__(self, answer: JSONRPCError | None) -> None:
        super().__init__()
        self.answer = answer


def decode(line: bytes) -> JSONRPCMessage:
    """The message on ``line``. Raises BadFrame."""
    text = line.decode("utf-8", "surrogateescape")
    try:
        value = _parsed(text)
    except Unreadable as refusal:
        raise BadFrame(answer_to(refusal)) from None
    except InvalidInput as refusal:
        raise BadFrame(answer_to(refusal, _id_of(json.loads(text)))) from None
    try:
        return _message(value)
    except Unreadable as refusal:
        is_answer = isinstance(value, dict) and "method" not in value
        raise BadFrame(None if is_answer else answer_to(refusal)) from None


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


def check(body: bytes) -> None:
    """Raises Unreadable for what is no message, and InvalidInput for a member that is sent twice."""
    _message(_parsed(body.decode("utf-8", "surrogateescape")))


def answer_to(refusal: MunimentError, asked: int | str | None = None) -> JSONRPCError:
    """The protocol's error for what is refused before it is read as a request, or for the request ``asked``."""
    unreadable = refusal if isinstance(refusal, Unreadable) else None
    number = unreadable.number if unreadable else INVALID_REQUEST
    error = ErrorData(code=number, message=refusal.message, data=refusal.body())
    return JSONRPCError(jsonrpc="2.0", id=unreadable.asked if unreadable else asked, error=error)


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


def _parsed(text: str) -> object:
    try:
        try:
            return members.parsed(text)
        except InvalidInput:
            json.loads(text)  # what follows the member that came twice may be no JSON
            raise
    except (ValueError, RecursionError):
        problem = "it cannot be read as JSON; send one JSON-RPC message in UTF-8"
        raise Unreadable("body", problem, number=PARSE_ERROR) from None


def _message(value: object) -> JSONRPCMessage:
    """Raises Unreadable for what is no message, by the member that is wrong; what was sent is not shown."""
    if isinstance(value, list):
        raise Unreadable("body", _BATCH)
    if not isinstance(value, dict):
        raise Unreadable("body", "it must be a JSON object, a message of JSON-RPC 2.0; send one")
    message, asked = cast("dict[str, Any]", value), _id_of(cast("object", value))
    if message.get("jsonrpc") != "2.0":
        raise Unreadable("jsonrpc", 'it must be "2.0"', asked=asked)
    if "method" in message and not isinstance(message["method"], str):
        raise Unreadable("method", "it must be a JSON string, the name of a method", asked=asked)
    if "method" in message and "id" in message and asked is None:
        raise Unreadable("id", "it must be a JSON string or a whole number")
    if not isinstance(message.get("params", {}), dict | None):
        raise Unreadable("params", "it must be a JSON object", asked=asked)
    try:
        return jsonrpc_message_adapter.validate_python(message, by_name=False)
    except ValidationError:
        raise Unreadable("method", "it is missing; send the name of a method", asked=asked) from None


def _id_of(value: object) -> int | str | None:
    """The id of what may be a message, if it has one."""
    identifier = cast("dict[str, Any]", value).get("id") if isinstance(value, dict) else None
    return identifier if isinstance(identifier, int | str) and not isinstance(identifier, bool) else None
