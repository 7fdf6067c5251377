"""What a mutant is, how a module of this package states its mutants, and which invariants one fails.

The mutants themselves are in the other modules, one for each family; ``__init__`` lists those modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from muniment.conformance.mutants.core import Core, CoreTarget
from muniment.conformance.mutants.provider import ProvidedEmbedder, ProviderTarget
from muniment.conformance.reference_target import ReferenceTarget
from muniment.conformance.reference_transport import ReferenceTransport, ReferenceTransportTarget
from muniment.conformance.runner import run
from muniment.conformance.target import Target
from muniment.reference import ReferenceStorage

SEED = 36
"""One with which the first eight queries of RANK-01 are of every kind."""

Plugin = type[ReferenceStorage] | type[ProvidedEmbedder] | type[ReferenceTransport] | type[Core]
PluginClass = TypeVar("PluginClass", bound=Plugin)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken plugin: ``plugin`` is a direct subclass of one of ``rehearsal.BASES``.

    ``name`` is the fault in the words of the field and ``breaks`` what is done wrong, in a sentence. ``fails`` is the
    exact set of ids that must not pass on it; ``made_for`` the one that it is there to show failing, None for a
    universal mutant.
    """

    name: str
    breaks: str
    plugin: Plugin
    fails: frozenset[str]
    made_for: str | None = None

    @property
    def target(self) -> Target:
        """The plugin as the suite takes it."""
        target = target_of(self.plugin)
        target.name = self.name
        return target


def target_of(plugin: Plugin) -> Target:
    """The target of a base of mutants, or of a subclass."""
    if issubclass(plugin, ReferenceStorage):
        return ReferenceTarget(plugin)
    if issubclass(plugin, ReferenceTransport):
        return ReferenceTransportTarget(plugin)
    return CoreTarget(plugin) if issubclass(plugin, Core) else ProviderTarget(plugin)


class Mutants:
    """The mutants of one module, in its order."""

    def __init__(self) -> None:
        self._found: list[Mutant] = []

    def __call__(self, name: str, *, made_for: str, fails: str) -> Callable[[PluginClass], PluginClass]:
        """Make the decorated class a mutant; ``fails`` are ids with spaces between, ``made_for`` among them.

        The first line of the class's docstring says what it breaks.
        """

        def state(plugin: PluginClass) -> PluginClass:
            breaks = (plugin.__doc__ or "").strip().partition("\n")[0]
            self._found.append(Mutant(name, breaks, plugin, frozenset(fails.split()), made_for))
            return plugin

        return state

    def __iter__(self) -> Iterator[Mutant]:
        return iter(self._found)


async def killed_by(mutant: Mutant) -> frozenset[str]:
    """The ids of the invariants that did not pass on a mutant."""
    report = await run(mutant.target, seed=SEED)
    return frozenset(one.id for one in report.results if not one.outcome.kept)
