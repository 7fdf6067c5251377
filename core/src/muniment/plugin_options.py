"""A plugin's options: those of its table of the configuration, and those in the query of a URL, which win.

Owns how they are refused. A value is never shown, since it may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from muniment.config import nearest, problem
from muniment.errors import ConfigurationError

IN_URL = "the storage URL"


class PluginOptions(BaseModel):
    """Base of the options of a plugin."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    @classmethod
    def names(cls) -> frozenset[str]:
        """As they are written in a configuration."""
        return frozenset(field.alias or name for name, field in cls.model_fields.items())


O = TypeVar("O", bound=PluginOptions)  # noqa: E741


def parse(model: type[O], plugin: str, table: Mapping[str, Any], url: Mapping[str, Any] | None = None) -> O:
    """The options in the plugin's ``table`` and in the ``url``. Raises ConfigurationError, naming the option and its
    place."""
    in_table, from_url = f"[plugins.{plugin}]", url or {}
    refuse_unknown(table, in_table, model.names())
    try:
        return model.model_validate({**table, **from_url})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        place = IN_URL if name in from_url else in_table
        raise ConfigurationError(f"{name}, set in {place}: {problem(first)}.", option=name) from None


def refuse_unknown(given: Iterable[str], place: str, known: frozenset[str], others: Iterable[str] = ()) -> None:
    """Raises ConfigurationError for a name that is neither among ``known`` nor among ``others``.

    Those are a driver's own: one of them may be what was meant, but they are not listed.
    """
    drivers = frozenset(others)
    for name in given:
        if name not in known and name not in drivers:
            meant = nearest(name, known | drivers)
            hint = meant if meant.startswith("did you mean") else nearest(name, known)
            raise ConfigurationError(f"{name}, set in {place}, is no option of the plugin; {hint}", option=name)
