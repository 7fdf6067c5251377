"""The headers of a request, and the refusal of what is said more than once."""

from __future__ import annotations

from collections.abc import Iterable

from muniment.errors import InvalidInput

Fields = Iterable[tuple[bytes, bytes]]
"""Names in any case, with their values, as ASGI has them."""


class Headers:
    """The headers of a request by their names in lower case."""

    def __init__(self, fields: Fields) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in fields:
            self._values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("utf-8", "surrogateescape"))

    def get(self, name: str) -> str | None:
        """The value, those of several joined as HTTP says."""
        values = self._values.get(name.lower())
        return None if values is None else ", ".join(values)

    def one(self, name: str) -> str | None:
        """The value of a header that is no list. Raises InvalidInput where there are several."""
        if len(self._values.get(name.lower(), ())) > 1:
            raise sent_twice(name)
        return self.get(name)


def sent_twice(field: str) -> InvalidInput:
    """The refusal of several values where one is taken: which of them counts, two readers may take differently."""
    return InvalidInput(field, "it is sent more than once; send it once")
