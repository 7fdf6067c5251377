"""The small inputs that faults of this kind of software boil down to, as data beside this module."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def pairs_that_never_match() -> tuple[tuple[str, str], ...]:
    """Names of which one must never give access to, count as, or be found by the other."""
    return tuple((one, other) for one, other in _read("pairs_that_never_match.json"))


def found_by() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Contents, each with the queries that must find it by its words alone."""
    return tuple((case["content"], tuple(case["found_by"])) for case in _read("found_by.json"))


def _read(name: str) -> Any:
    return json.loads((files("muniment.conformance") / "data" / name).read_text(encoding="utf-8"))
