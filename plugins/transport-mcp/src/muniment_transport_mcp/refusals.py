"""The protocol's own errors, each with Muniment's refusal in its ``data``: its code, what is wrong, and what to do.

Those of the SDK say less, or show what pydantic says of what was sent. What is wrong with a request's params is said
here as well; what is wrong with the message around them is ``frames``'.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from muniment.errors import Internal, InvalidInput, MunimentError, NotFound
from muniment.serving.asgi import Message, Send

_PROBLEMS: Final[Mapping[str, str]] = {
    "missing": "it is missing; send it",
    "dict_type": "it must be a JSON object; send one, and not its text",
    "model_type": "it must be a JSON object; send one, and not its text",
    "model_attributes_type": "it must be a JSON object; send one, and not its text",
    "string_type": "it must be a JSON string",
}
_REFUSED: Final = 400
_BROKEN: Final = 500


async def typed(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """The SDK's middleware by which whatever a request is refused with is complete."""
    try:
        return await call_next(ctx)
    except ValidationError as error:
        raise MCPError.from_error_data(of(wrong_params(error), INVALID_PARAMS)) from None
    except MCPError as error:
        raise MCPError.from_error_data(completed(error.error)) from None


def wrong_params(error: ValidationError) -> InvalidInput:
    """What is wrong with a request's params first, by the path of its field; nothing that was sent is shown."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    path = [str(part) for part in first["loc"]]
    field = ".".join(path[1:] if path[:1] == ["params"] and len(path) > 1 else path) or "params"
    said = first["msg"].replace("Input should", "it must")
    return InvalidInput(field, _PROBLEMS.get(first["type"], said))


def of(refusal: MunimentError, number: int) -> ErrorData:
    """The protocol's error that carries a refusal."""
    return ErrorData(code=number, message=refusal.message, data=refusal.body())


def completed(error: ErrorData) -> ErrorData:
    """``error`` with a refusal in its data, where it has none yet; what the protocol has there stays."""
    data: object = error.data
    known = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    if "code" in known:
        return error
    refusal = _refusal(error)
    return ErrorData(code=error.code, message=refusal.message, data={**known, **refusal.body()})


def answered(send: Send) -> Send:
    """``send``, by which every answer that is a refusal by its status has a complete error for its body."""
    began: list[Message] = []
    parts: list[bytes] = []

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= _REFUSED:
            began.append(message)
        elif not began:
            await send(message)
        else:
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                start = began.pop()
                body = _completed_body(start["status"], b"".join(parts))
                about = (b"content-type", b"content-length")
                kept = [pair for pair in start.get("headers", ()) if pair[0].lower() not in about]
                fields = [*kept, (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
                await send({**start, "headers": fields})
                await send({"type": "http.response.body", "body": body})

    return sending


def _completed_body(status: int, body: bytes) -> bytes:
    """The error that an answer carries, complete; one that says no more than its status where it carries none."""
    try:
        answer: object = json.loads(body)
    except ValueError:
        answer = None
    found = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    said: object = found.get("error")
    if isinstance(said, dict):
        error = ErrorData.model_validate(said)
    elif status >= _BROKEN:
        error = ErrorData(code=INTERNAL_ERROR, message="Something failed inside")
    else:
        refusal = InvalidInput("request", f"it is refused with {status}; send it as the protocol has it")
        error = of(refusal, INVALID_REQUEST)
    whole = {"jsonrpc": "2.0", "id": found.get("id"), "error": completed(error).model_dump(exclude_none=True)}
    return json.dumps(whole, separators=(",", ":")).encode()


def _refusal(error: ErrorData) -> MunimentError:
    said = error.message.rstrip(".")
    match error.code:
        case code if code == METHOD_NOT_FOUND:
            return NotFound("Method not found: this server has tools alone; use tools/list and tools/call.")
        case code if code == PARSE_ERROR:
            return InvalidInput("body", "it cannot be read as JSON; send one JSON-RPC message")
        case code if code == UNSUPPORTED_PROTOCOL_VERSION:
            served = ", ".join((*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS))
            return InvalidInput("MCP-Protocol-Version", f"this version is not served; use one of {served}")
        case code if code == HEADER_MISMATCH:
            problem = "this header is missing or says something else than the body; send the same"
            return InvalidInput(said.partition(" ")[0], problem)
        case code if code == INVALID_PARAMS and error.data == "":
            return InvalidInput("method", "nothing but initialize begins a session; send that first")
        case code if code == INVALID_PARAMS:
            return InvalidInput("_meta", f"{said.removeprefix('params._meta ')}; send what the protocol asks for")
        case code if code == INVALID_REQUEST:
            return InvalidInput("body", "it must be one request or notification of JSON-RPC 2.0; send one")
        case _:
            return Internal(f"{said}; try again, and tell whoever runs this server.")
