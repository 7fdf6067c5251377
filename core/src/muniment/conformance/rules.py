"""How a module of ``invariants`` states its rules: a decorator that makes a check into an invariant."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from muniment.conformance.invariant import Check, Feature, Invariant, Seat

STORAGE = frozenset({Seat.STORAGE})
STORAGE_AND_TRANSPORT = frozenset({Seat.STORAGE, Seat.TRANSPORT})
STORAGE_AND_EMBEDDER = frozenset({Seat.STORAGE, Seat.EMBEDDER})
EMBEDDER = frozenset({Seat.EMBEDDER})
TRANSPORT = frozenset({Seat.TRANSPORT})


class Rules:
    """The invariants of one module, in the order of its checks; ``seats`` and ``since`` are those of all of them."""

    def __init__(self, seats: frozenset[Seat], since: str = "1.0") -> None:
        self._seats = seats
        self._since = since
        self._found: list[Invariant] = []

    def __call__(
        self,
        id: str,
        statement: str,
        *,
        features: frozenset[Feature] = frozenset(),
        lenient_without: Feature | None = None,
    ) -> Callable[[Check], Check]:
        """Make the decorated check the invariant ``id``."""

        def state(check: Check) -> Check:
            self._found.append(
                Invariant(
                    id=id,
                    statement=statement,
                    check=check,
                    seats=self._seats,
                    since=self._since,
                    features=features,
                    lenient_without=lenient_without,
                )
            )
            return check

        return state

    def __iter__(self) -> Iterator[Invariant]:
        return iter(self._found)
