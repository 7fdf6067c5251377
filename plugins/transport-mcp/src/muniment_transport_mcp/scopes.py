"""A call that a larger scope would allow: 403 and a challenge, by which a client asks its user for that scope.

So says the protocol's authorization, under "Runtime Insufficient Scope Errors". Whether a call is allowed is the
operation's rule, as for the engine, to which every other call is left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError

from muniment.errors import AccessDenied
from muniment.models import Principal
from muniment_transport_mcp.tools import TOOLS, in_tool_names

Request = Mapping[str, Any]


def beyond(caller: Principal, body: bytes) -> tuple[AccessDenied, bytes] | None:
    """The refusal of a call in ``body`` for which ``caller`` lacks a scope that its issuer has, and the answer with it.

    None where the body is anything else.
    """
    if caller.write_scope is None:
        return None
    request = _call(body)
    operation = TOOLS.get(str(request["params"].get("name"))) if request is not None else None
    if request is None or operation is None or operation.serves(caller) or not operation.is_within_reach(caller):
        return None
    refusal = operation.not_served(caller)
    message = in_tool_names(refusal.message)
    error = ErrorData(code=INVALID_REQUEST, message=message, data={**refusal.body(), "message": message})
    number = request.get("id")
    known = number if isinstance(number, int | str) and not isinstance(number, bool) else None
    answer = JSONRPCError(jsonrpc="2.0", id=known, error=error)
    return refusal, answer.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8", "backslashreplace")


def _call(body: bytes) -> Request | None:
    """The call of a tool in ``body``, if it is one."""
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    request = cast("dict[str, Any]", value)
    return request if request.get("method") == "tools/call" and isinstance(request.get("params"), dict) else None
