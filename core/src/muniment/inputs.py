"""What every input shares: strict models, text that can be stored, field types, and how a failure becomes a refusal."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from muniment import limits
from muniment.errors import InvalidInput

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_FIELDS_MAX = 100
"""More fields than an object of an input has, those included that a server adds to what a client reads."""
_UNKNOWN_AMONG_MANY = "unknown_among_many"
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def storable(text: str) -> str:
    """The text, if every storage can keep it as it is. Raises ValueError."""
    # One refusal of both: a transport whose parser cannot carry a surrogate hands over a NUL in its place.
    if _UNSTORABLE.search(text):
        raise ValueError("holds a NUL character or a lone surrogate; send valid Unicode without NUL")
    return text


def telling(text: str) -> str:
    """The text, if it is more than white space. Raises ValueError."""
    if not text.strip():
        raise ValueError("it is blank; send something that tells")
    return text


Text = Annotated[str, AfterValidator(storable)]
"""Text without NUL and lone surrogates."""
Content = Annotated[str, Field(min_length=1), AfterValidator(storable)]
Id = Annotated[str, Field(min_length=1, max_length=limits.ID_MAX), AfterValidator(storable)]
Version = Annotated[int, Field(ge=1, le=2**31 - 1)]
Cursor = Annotated[
    str,
    Field(min_length=1, max_length=limits.CURSOR_MAX, description="the last reply's, to continue it"),
    AfterValidator(storable),
]
IdempotencyKey = Annotated[str, Field(min_length=1, max_length=limits.IDEMPOTENCY_KEY_MAX), AfterValidator(storable)]
ListLimit = Annotated[int, Field(ge=1, le=limits.LIST_LIMIT_MAX)]
AgentId = Annotated[str, StringConstraints(pattern=limits.AGENT_NAME_PATTERN)]


def few(sent: Any, known: Collection[str]) -> object:
    """What was sent, if it is no object of more fields than any has. Raises PydanticCustomError for one that is not
    ``known``: the library would make an error of each, and there may be millions."""
    fields = cast("dict[object, object]", sent) if isinstance(sent, dict) else dict[object, object]()
    if len(fields) > _FIELDS_MAX:
        unknown = next(str(name) for name in fields if name not in known)
        raise PydanticCustomError(_UNKNOWN_AMONG_MANY, "no such field", {"name": unknown})
    return cast("object", sent)


class Input(BaseModel):
    """Base of every operation's input and of the objects in it: no coercion, and an unknown field is refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _of_few_fields(cls, sent: Any) -> Any:
        return few(sent, cls.model_fields)


def refusal(error: ValidationError, *, within: str = "") -> InvalidInput:
    """The first problem as a refusal that names field, limit and remedy, and never repeats the input's value.

    ``within`` is the field that was parsed.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    context = first.get("ctx", {})
    unknown = (context["name"],) if first["type"] == _UNKNOWN_AMONG_MANY else ()
    parts = (within, *(_UNPRINTABLE.sub("?", str(part)[:100]) for part in (*first["loc"], *unknown)))
    field = ".".join(part for part in parts if part) or "input"
    return InvalidInput(field, _problem(first["type"], context, first["msg"]))


_PATTERNS: Mapping[str, str] = {
    limits.TAG_PATTERN: "1 to 64 of A-Z, a-z, 0-9 and . _ -",
    limits.PROJECT_KEY_PATTERN: "1 to 200 of A-Z, a-z, 0-9 and . _ / -",
    limits.AGENT_NAME_PATTERN: "1 to 64 of A-Z, a-z, 0-9 and . _ : @ / + -",
}
"""What a pattern of ``limits`` asks for, in words."""

_NO_SUCH_FIELD = "no such field; remove it, or check its spelling"
_PROBLEMS: Mapping[str, str] = {
    "missing": "it is missing; send it",
    "extra_forbidden": _NO_SUCH_FIELD,
    _UNKNOWN_AMONG_MANY: _NO_SUCH_FIELD,
    "string_type": "it is not a text; send a JSON string",
    "string_unicode": "it holds a lone surrogate; send valid Unicode",
    "int_type": "it is not a whole number; send one without quotes",
    "int_from_float": "it is not a whole number; send one without a fraction",
    "float_type": "it is not a number; send one without quotes",
    "bool_type": "it is not true or false; send one of them without quotes",
    "list_type": "it is not a list; send a JSON array",
    "dict_type": "it is not an object; send a JSON object",
    "model_type": "it is not an object; send a JSON object",
    "string_too_short": "it has fewer than {min_length} characters; send at least that many",
    "string_too_long": "it has more than {max_length} characters; shorten it",
    "too_short": "it has fewer than {min_length} entries; send at least that many",
    "too_long": "it has more than {max_length} entries; send fewer",
    "greater_than_equal": "it is below {ge}; send {ge} or more",
    "less_than_equal": "it is above {le}; send {le} or less",
    "finite_number": "it is not finite; send a number",
    "literal_error": "it is none of {expected}; send one of them",
}
"""A failed validation of the library in our words, by its type."""


def _problem(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind == "string_pattern_mismatch":
        wanted = _PATTERNS.get(context["pattern"], context["pattern"])
        return f"it has other characters, or more or fewer, than it may have; send {wanted}"
    if kind == "string_too_short" and context["min_length"] == 1:
        return "it is empty; send at least one character"
    if kind in _PROBLEMS:
        return _PROBLEMS[kind].format_map(context)
    return message.removeprefix("Value error, ")
