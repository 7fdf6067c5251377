"""What the log writes, in either format: one line an entry, no secret, no traceback unless debugging."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from datetime import datetime
from io import StringIO
from typing import Any

import pytest

from muniment.cli import logs

SECRET = "postgresql://me:s3cret@host/db"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Generator[StringIO]:
    """What the log has written, as if no handler had been there before."""
    root, ours = logging.getLogger(), logging.getLogger("muniment")
    level = ours.level
    monkeypatch.setattr(root, "handlers", [])
    stream = StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    logs.start("info")
    yield stream
    ours.setLevel(level)


def entries(stream: StringIO) -> list[dict[str, Any]]:
    """Each line as the object that it is."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_entry_is_an_object_a_line(written: StringIO) -> None:
    """Whatever its message holds; with the time in UTC, and what it says for programs."""
    logs.write_as("json")
    logging.getLogger("muniment.x").info(
        "two\nlines, \u2028 and \ud800 %s", "記憶", extra={"operation": "memory.get", "outcome": "ok", "other": 1}
    )
    logging.getLogger("muniment.y").warning("plain")
    first, second = entries(written)

    assert first.pop("time") <= second.pop("time")
    assert first == {
        "level": "info",
        "logger": "muniment.x",
        "message": "two\nlines, \u2028 and \ud800 記憶",
        "operation": "memory.get",
        "outcome": "ok",
    }
    assert second == {"level": "warning", "logger": "muniment.y", "message": "plain"}


def test_the_time_is_utc(written: StringIO) -> None:
    """To the millisecond, with its offset."""
    logs.write_as("json")
    logging.getLogger("muniment").warning("x")
    (entry,) = entries(written)
    at = datetime.fromisoformat(entry["time"])

    assert at.utcoffset() is not None
    assert at.utcoffset() == datetime.fromisoformat("2024-01-01T00:00:00+00:00").utcoffset()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_secrets_are_blanked_out(written: StringIO, log_format: str) -> None:
    """In the message and in what it is made of; the object stays one that can be read."""
    logs.write_as(log_format)
    logging.getLogger("muniment").warning('cannot reach "%s" with password="s3cret"', SECRET)

    assert "s3cret" not in written.getvalue()
    assert "cannot reach" in written.getvalue()
    if log_format == "json":
        assert len(entries(written)) == 1


@pytest.mark.parametrize("field", logs.FIELDS)
@pytest.mark.parametrize("secret", [f"muniment_{'s' * 43}", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln"])
def test_no_field_shows_a_secret(written: StringIO, field: str, secret: str) -> None:
    """A client chooses what its request is called, and may send its token there. Numbers stay numbers."""
    logs.write_as("json")
    logging.getLogger("muniment").warning("x", extra={field: f"mine:{secret}"})
    logging.getLogger("muniment").warning("x", extra={field: 4.5})
    first, second = entries(written)

    assert secret not in first[field]
    assert first[field].startswith("mine:")
    assert second[field] == 4.5


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("debugging", [False, True])
def test_an_exception_is_its_type_unless_debugging(written: StringIO, log_format: str, debugging: bool) -> None:
    """Its text may repeat what a caller sent."""
    logs.write_as(log_format)
    if debugging:
        logging.getLogger("muniment").setLevel(logging.DEBUG)
    try:
        raise RuntimeError("what a caller sent")
    except RuntimeError:
        logging.getLogger("muniment").exception("failed")

    assert ("what a caller sent" in written.getvalue()) == debugging
    assert "RuntimeError" in written.getvalue()
    if log_format == "json":
        (entry,) = entries(written)
        assert (entry["exception"] == "RuntimeError") != debugging


def test_the_format_can_be_changed_back(written: StringIO) -> None:
    """Entries before and after are in their own."""
    log = logging.getLogger("muniment")
    for log_format in ("text", "json", "text"):
        logs.write_as(log_format)
        log.warning("x")
    first, second, third = written.getvalue().splitlines()

    assert first.endswith("WARNING muniment: x")
    assert json.loads(second)["message"] == "x"
    assert third.endswith("WARNING muniment: x")


def test_handlers_of_others_are_left_alone(written: StringIO) -> None:
    """A program that embeds Muniment and has its own log keeps it as it is."""
    own = logging.StreamHandler(StringIO())
    own.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger().addHandler(own)
    logs.write_as("json")
    logging.getLogger("muniment").warning("x")

    assert own.stream.getvalue() == "x\n"
