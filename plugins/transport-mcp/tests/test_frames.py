"""Lines that are no message: each is answered, and none ends the session."""

from __future__ import annotations

import pytest
from mcp_types import INVALID_REQUEST, PARSE_ERROR

from muniment_transport_mcp import frames

TWICE = '{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":1,"a":2}'


@pytest.mark.parametrize(
    ("line", "number", "asked"),
    [
        (TWICE + "}", INVALID_REQUEST, 7),
        (TWICE, PARSE_ERROR, None),
        (TWICE + ", oops", PARSE_ERROR, None),
        (TWICE + "} {}", PARSE_ERROR, None),
        (TWICE + ',"x":' + "[" * 100_000, PARSE_ERROR, None),
        (TWICE + ',"x":' + "1" * 5_000 + "}", PARSE_ERROR, None),
    ],
    ids=["whole", "cut off", "broken", "two", "deep", "digits"],
)
def test_what_follows_a_member_that_came_twice(line: str, number: int, asked: int | None) -> None:
    """It may be no JSON, which nobody had read when the member was met."""
    with pytest.raises(frames.BadFrame) as refused:
        frames.decode(line.encode())
    answer = refused.value.answer
    assert answer is not None
    assert (answer.error.code, answer.id) == (number, asked)
