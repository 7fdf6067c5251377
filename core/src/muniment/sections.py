"""The rules of an envelope's sections: who writes which, what a value may be, how a sync merges, what others see.

Pure. Names of fields that are the server's (``SERVER_FIELDS``) are dropped from whatever a client sends.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from muniment import limits
from muniment.agent_models import SectionName, Visibility
from muniment.errors import InvalidInput, SectionAppendOnly, SectionReadOnly
from muniment.inputs import Input, Text, refusal, storable
from muniment.models import Agent

SERVER_FIELDS = frozenset({"byte_size", "updated_at", "schema_version"})
TEXTS = frozenset({SectionName.LONG_TERM, SectionName.SOUL, SectionName.SHARED})
OBJECTS = frozenset({SectionName.DEDUP_STATE, SectionName.RUNTIME_META})
KEYS: Mapping[SectionName, str] = {SectionName.DAILY: "date", SectionName.RELATIONSHIPS: "other"}
"""The sections that are arrays of entries, with the field by which a sync merges them."""
ALWAYS_PRIVATE = frozenset({SectionName.CYCLES, SectionName.SYSTEM_EXCHANGES})
READ_ONLY_REASON = "system_exchanges_is_read_only"
APPEND_ONLY_REASON = "cycles_is_append_only"
_DEPTH_MAX = 64
_PARTS_MAX = limits.SECTION_BYTES_MAX // 2
"""Values in a value; each takes two bytes of JSON at least, so that as many are too large in any case."""
_INTEGER_BITS_MAX = 1_024
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SectionDraft:
    """A section as a client wants it: its validated value, and its visibility."""

    name: SectionName
    value: Any
    visibility: Visibility

    @property
    def byte_size(self) -> int:
        """The value's size as compact UTF-8 JSON."""
        return json_size(self.value)


def empty(name: SectionName) -> Any:
    """What a section reads as before it was ever written."""
    return "" if name in TEXTS else {} if name in OBJECTS else []


def check_writable(name: SectionName) -> None:
    """Refuse to replace what no agent may replace. Raises SectionReadOnly, SectionAppendOnly."""
    if name is SectionName.SYSTEM_EXCHANGES:
        raise SectionReadOnly(
            "system_exchanges is written by the platform alone; write your own notes to another section.",
            reason=READ_ONLY_REASON,
        )
    if name is SectionName.CYCLES:
        raise SectionAppendOnly(
            "cycles only grows; append with section.log_cycle instead of replacing it.", reason=APPEND_ONLY_REASON
        )


def draft(name: SectionName, value: Any, visibility: str | None, *, field: str) -> SectionDraft:
    """A client's section, validated. Raises InvalidInput, SectionReadOnly, SectionAppendOnly."""
    check_writable(name)
    made = SectionDraft(name, _value(name, value, field), Visibility(visibility or Visibility.PRIVATE))
    check_size(made, field)
    return made


def check_size(made: SectionDraft, field: str) -> None:
    """Refuse a section over a hard limit, which a merged one may be as well. Raises InvalidInput."""
    if made.name in KEYS and len(made.value) > limits.SECTION_ENTRIES_MAX:
        raise InvalidInput(
            field,
            f"section {made.name} would have {len(made.value):,} entries; at most {limits.SECTION_ENTRIES_MAX:,} are "
            "kept. Save it whole with fewer, or move a part to a shared memory",
            limit=limits.SECTION_ENTRIES_MAX,
        )
    if made.byte_size > limits.SECTION_BYTES_MAX:
        raise InvalidInput(
            field,
            f"section {made.name} would be {made.byte_size:,} bytes; at most {limits.SECTION_BYTES_MAX:,} are kept. "
            "Shorten it, or move a part to a shared memory",
            limit=limits.SECTION_BYTES_MAX,
        )


def warnings(made: Sequence[SectionDraft]) -> tuple[str, ...]:
    """What is above the size at which a section should be shortened."""
    return tuple(
        f"section {one.name} has {one.byte_size:,} bytes; above {limits.SECTION_BYTES_WARNED:,} it should be shortened"
        for one in made
        if one.byte_size > limits.SECTION_BYTES_WARNED
    )


def merged(current: Any, sent: SectionDraft) -> SectionDraft:
    """A patch's section: entries replace those with the same key and join the others, in the order of their keys; any
    other section is replaced whole."""
    key = KEYS.get(sent.name)
    if key is None:
        return sent
    entries = {entry[key]: entry for entry in (*current, *sent.value)}
    return SectionDraft(sent.name, [entries[name] for name in sorted(entries)], sent.visibility)


def sync_key(mode: str, runtime: str, sections: Sequence[SectionDraft], now: datetime) -> str:
    """What a sync is known by: its semantic payload, runtime and UTC day, whatever the order of keys and entries."""
    payload = {one.name.value: [one.value, one.visibility] for one in sections}
    text = json.dumps([mode, runtime, now.date().isoformat(), payload], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def visible(name: SectionName, value: Any, visibility: Visibility, *, common_pod: bool) -> tuple[bool, Any]:
    """What another agent may read of a section: whether anything, and which part.

    ``common_pod`` says that both are in a pod together. An element's own visibility counts before its section's.
    """
    opened = {Visibility.PUBLIC, Visibility.POD} if common_pod else {Visibility.PUBLIC}
    if name in ALWAYS_PRIVATE:
        return False, empty(name)
    if name not in KEYS:
        return (True, value) if visibility in opened else (False, empty(name))
    shown = [entry for entry in value if Visibility(entry.get("visibility") or visibility) in opened]
    return bool(shown) or visibility in opened, shown


def cycle(text: str) -> tuple[str, int]:
    """A cycle's text within its limit, and how many characters were cut."""
    kept = text[: limits.CYCLE_MAX]
    return kept, len(text) - len(kept)


def peer(agent: Agent) -> str:
    """An agent as it is named among the peers of an exchange."""
    return f"{agent.name}/{agent.instance}"


def without_server_fields(sent: Any) -> Any:
    """What a client sent, without the fields that are the server's."""
    if not isinstance(sent, dict):
        return sent
    fields = cast("dict[Any, Any]", sent)
    return {name: part for name, part in fields.items() if name not in SERVER_FIELDS}


def json_size(value: object) -> int:
    """A value's size in bytes of compact UTF-8 JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def json_value(value: object) -> object:
    """A value that JSON can hold and every storage can keep. Raises ValueError."""
    waiting, parts = [(value, 0)], 1
    while waiting:
        part, depth = waiting.pop()
        if not isinstance(part, dict | list):
            _check_scalar(part)
            continue
        held = cast("dict[object, object] | list[object]", part)
        parts += len(held)
        if parts > _PARTS_MAX:
            raise ValueError(f"holds more than {_PARTS_MAX:,} values; send fewer")
        if held and depth == _DEPTH_MAX:
            raise ValueError(f"is nested more than {_DEPTH_MAX} levels deep; flatten it")
        if isinstance(held, dict):
            for name in held:
                _check_name(name)
        waiting.extend((one, depth + 1) for one in (held.values() if isinstance(held, dict) else held))
    return value


def _check_scalar(value: object) -> None:
    match value:
        case None | bool():
            pass
        case int():
            if value.bit_length() > _INTEGER_BITS_MAX:
                raise ValueError(f"holds a number of more than {_INTEGER_BITS_MAX} bits; send it as a text")
        case str():
            storable(value)
        case float():
            if not math.isfinite(value):
                raise ValueError("holds a number that is not finite; JSON has none")
        case _:
            raise ValueError("holds something that is not JSON")


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise ValueError("holds a key that is not a string")
    storable(name)


def _day(value: str) -> str:
    try:
        if not _DATE.fullmatch(value):  # fromisoformat also takes weeks, and dates without dashes
            raise ValueError
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise ValueError("it is not a date; write it as 2026-01-31") from None


def _value(name: SectionName, value: Any, field: str) -> Any:
    try:
        parsed = _SHAPES[name].validate_python(value, strict=True)
    except ValidationError as error:
        raise refusal(error, within=field) from None
    if name not in KEYS:
        return parsed
    key = KEYS[name]
    entries = [entry.model_dump(mode="json", exclude_none=True) for entry in parsed]
    if len({entry[key] for entry in entries}) < len(entries):
        raise InvalidInput(field, f"two entries have the same {key!r}; send one of them")
    return sorted(entries, key=lambda entry: entry[key])


class _Entry(Input):
    """An element of a section that is an array."""

    content: Text
    visibility: Literal["private", "pod", "public"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_server_fields(cls, sent: Any) -> Any:
        return without_server_fields(sent)


class _Daily(_Entry):
    date: Annotated[str, AfterValidator(_day)]


class _Relationship(_Entry):
    other: Annotated[Text, Field(min_length=1, max_length=2 * limits.ID_MAX + 1)]


_AT_MOST: Final = Field(max_length=limits.SECTION_ENTRIES_MAX)
_OBJECT: TypeAdapter[Any] = TypeAdapter(Annotated[dict[str, Any], BeforeValidator(json_value)])
_TEXT: TypeAdapter[Any] = TypeAdapter(Text)
_SHAPES: Mapping[SectionName, TypeAdapter[Any]] = {
    **dict.fromkeys(TEXTS, _TEXT),
    **dict.fromkeys(OBJECTS, _OBJECT),
    SectionName.DAILY: TypeAdapter(Annotated[list[_Daily], _AT_MOST]),
    SectionName.RELATIONSHIPS: TypeAdapter(Annotated[list[_Relationship], _AT_MOST]),
}
