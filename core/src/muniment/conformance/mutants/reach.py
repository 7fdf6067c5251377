"""Which seams a check reaches on the plugin that is not broken.

A check on which nothing that a mutant overrides is ever called ends on the mutant as it ends on its base: up to the
first call of an overridden method both do the same, and there is no such call. So it need not be run again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def overridden(plugin: type[Any]) -> frozenset[str] | None:
    """The names that a mutant defines; None where it defines one that no call can be noted of."""
    ignored = {"__doc__", "__module__", "__qualname__", "__annotations__", "__firstlineno__", "__static_attributes__"}
    names = frozenset(vars(plugin)) - ignored
    return None if any(name.startswith("__") for name in names) else names


def noting(base: type[Any], names: set[str]) -> type[Any]:
    """A subclass of ``base`` that does the same and notes the name of each method that is called."""
    methods = {
        name: _noted(name, inspect.getattr_static(base, name), names) for name in dir(base) if not name.startswith("__")
    }
    return type(f"Noting{base.__name__}", (base,), methods)


def _noted(name: str, attribute: Any, names: set[str]) -> Any:
    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*positional: Any, **named: Any) -> Any:
            names.add(name)
            return function(*positional, **named)

        return call

    match attribute:
        case property():
            return property(noted(attribute.fget)) if attribute.fget else attribute
        case classmethod():
            return classmethod(noted(attribute.__func__))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        case staticmethod():
            return staticmethod(noted(attribute.__func__))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        case _:
            return noted(attribute) if inspect.isfunction(attribute) else attribute
