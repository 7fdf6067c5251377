"""What the JSON Schema of a section write says, for hosts that know a value by its schema alone.

Several hosts turn the value of a field without a type into a string, and some cannot keep an object whose properties
are not named. So each section that can be written is named, with the type of its value. What is valid is decided by
``muniment.sections``, which also refuses the other sections with the reason.
"""

from __future__ import annotations

from typing import Any

from muniment import sections
from muniment.agent_models import SectionName, Visibility

_VISIBILITY: dict[str, Any] = {"enum": [one.value for one in Visibility], "type": "string"}
_VERSION: dict[str, Any] = {"type": "integer"}

WRITABLE = tuple(name.value for name in SectionName if name not in sections.ALWAYS_PRIVATE)
"""The sections that a save or a sync may hold."""

SECTION: dict[str, Any] = {"enum": list(WRITABLE), "type": "string"}

VALUE: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "object"}, {"items": {"type": "object"}, "type": "array"}],
    "description": "a text; for dedup_state and runtime_meta an object; for daily an array of {date, content}, for "
    "relationships of {other, content}",
}


def synced() -> dict[str, Any]:
    """The schema of a sync's sections, by name."""
    return {
        "additionalProperties": False,
        "minProperties": 1,
        "properties": {name: _section(SectionName(name)) for name in WRITABLE},
        "type": "object",
    }


def _section(name: SectionName) -> dict[str, Any]:
    return {
        "properties": {"value": _value(name), "visibility": _VISIBILITY, "version": _VERSION},
        "required": ["value"],
        "type": "object",
    }


def _value(name: SectionName) -> dict[str, Any]:
    if name in sections.TEXTS:
        return {"type": "string"}
    key = sections.KEYS.get(name)
    if key is None:
        return {"type": "object"}
    fields = {field: {"type": "string"} for field in (key, "content", "visibility")}
    return {"items": {"properties": fields, "required": [key, "content"], "type": "object"}, "type": "array"}
