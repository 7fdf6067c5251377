"""What stands in a storage's registry of spaces: which one is active, which one served before, which ones can go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from muniment.engine import spaces
from muniment.errors import CapabilityNotSupported, ConfigurationError
from muniment.ports import Embedder, Progress, RegisteredSpace, Space, SpaceStorage, Storage


@dataclass(frozen=True, slots=True)
class Standing:
    """A registered space, how much of it there is, and its place among the others.

    ``place`` is 0 for the active one, 1 for the one that served before it, and so on; None was never active.
    """

    registered: RegisteredSpace
    progress: Progress
    place: int | None

    @property
    def space(self) -> Space:
        """The space itself."""
        return self.registered.space

    @property
    def active(self) -> bool:
        """Whether servers answer from it."""
        return self.place == 0

    @property
    def complete(self) -> bool:
        """Whether no memory lacks its vectors."""
        return self.progress.complete >= self.progress.memories

    @property
    def percent(self) -> int:
        """The share of memories that are complete, rounded down."""
        return share_of(self.progress)

    @property
    def state(self) -> str:
        """Its place in a word."""
        return {None: "never active", 0: "active", 1: "previous"}.get(self.place, "former")


def share_of(progress: Progress) -> int:
    """The share of memories that are complete, in percent, rounded down: 100 says that all are."""
    return 100 * progress.complete // progress.memories if progress.memories else 100


def space_storage(storage: object) -> SpaceStorage:
    """The storage as one that keeps a registry. Raises CapabilityNotSupported for a plugin of an older contract."""
    registry = spaces.registry_of(storage)
    if registry is None:
        raise CapabilityNotSupported(
            "The storage's plugin was written for a contract before 1.2 and keeps no registry of spaces; upgrade it."
        )
    return registry


async def standings(storage: SpaceStorage) -> Sequence[Standing]:
    """Every registered space, the active one first, then those that served before it, latest first."""
    found = await storage.list_spaces()
    served = [one for one in found if one.activated_at is not None]
    served.sort(key=lambda one: (one.activated_at, one.space.id), reverse=True)
    others = [one for one in found if one.activated_at is None]
    placed = [*enumerate(served), *((None, one) for one in others)]
    return [Standing(one, await storage.space_progress(one.space.id), place) for place, one in placed]


async def switch_to(storage: Storage, embedder: Embedder, *, incomplete: bool = False) -> Standing:
    """Make an embedder's space the active one, once its fingerprint is that of its stored vectors.

    Raises EmbedderMismatch, EmbedderUnavailable, CapabilityNotSupported, and ConfigurationError where memories lack
    vectors in it and ``incomplete`` does not say that this is meant.
    """
    registry = space_storage(storage)
    space = await embedder.space()
    progress = await registry.space_progress(space.id)
    if progress.complete < progress.memories and not incomplete:
        raise ConfigurationError(
            f"The space {space.id} has the vectors of {progress.complete} of {progress.memories} memories; run "
            f"muniment reembed --to {embedder.name} first, or add --incomplete: meaning then finds the others once "
            "they have theirs."
        )
    await spaces.register(storage, embedder)
    await registry.activate_space(space.id, embedder.name)
    return next(one for one in await standings(registry) if one.space.id == space.id)


async def go_back(
    storage: SpaceStorage, space_of: Callable[[str], Awaitable[Space | None]], *, from_none: bool = False
) -> Standing:
    """Make the space that served before the active one active again; the active one where no embedder is configured
    now (``from_none``).

    ``space_of`` gives the space of an embedder as it is configured now. Raises ConfigurationError where there is no way
    back, or where the embedder's options would lead to another space.
    """
    found = await standings(storage)
    place = 0 if from_none else 1
    previous = next((one for one in found if one.place == place), None)
    if previous is None or previous.registered.embedder is None:
        raise ConfigurationError(
            f"No space served before {'none' if from_none else 'the active one'}, or it was pruned; configure the "
            "embedder that you want, and restart: its vectors are made again."
        )
    embedder = previous.registered.embedder
    now = await space_of(embedder)
    if now is not None and now.id != previous.space.id:
        raise ConfigurationError(
            f"The vectors that served before are in the space {previous.space.id}, and with its options in the "
            f"configuration the embedder {embedder} makes those of {now.id}; set the plugin's options, such as "
            "model_name or dimensions, back to what they were, then run this again."
        )
    await storage.activate_space(previous.space.id, embedder)
    return previous


async def found_out(storage: Storage, embedder: Embedder | None) -> Sequence[str]:
    """What there is of the configured embedder's vectors, a sentence each. Opens the embedder, and loads its model.

    Raises EmbedderMismatch, EmbedderUnavailable, ConfigurationError.
    """
    registry = spaces.registry_of(storage)
    if embedder is None or registry is None:
        return []
    await embedder.open()
    try:
        space = await embedder.space()
        if not any(one.space.id == space.id for one in await registry.list_spaces()):
            return [f"there are none of {embedder.name} yet; the next server makes them, in the space {space.id}"]
        await spaces.register(storage, embedder)
    finally:
        await embedder.close()
    progress = await registry.space_progress(space.id)
    return [f"{progress.complete} of {progress.memories} memories have theirs in the space {space.id}"]


def prunable(found: Sequence[Standing], ids: Sequence[str] = ()) -> Sequence[Standing]:
    """The spaces that go: those with these ids, or without any all that served before the active one.

    Raises ConfigurationError for an id that is not registered or is the active one's, and, without ids, where the
    active space is not complete.
    """
    by_id = {one.space.id: one for one in found}
    for name in ids:
        if name not in by_id:
            raise ConfigurationError(f"There is no space {name!r}; the spaces are {', '.join(by_id) or 'none'}.")
        if by_id[name].active:
            raise ConfigurationError(f"The space {name} is the active one and stays; activate another one first.")
    if ids:
        return [by_id[name] for name in dict.fromkeys(ids)]
    going = [one for one in found if one.place]
    active = next((one for one in found if one.active), None)
    if going and active is not None and not active.complete:
        raise ConfigurationError(
            f"The active space {active.space.id} has the vectors of {active.progress.complete} of "
            f"{active.progress.memories} memories, and the others are the way back; wait, or run muniment reembed, or "
            "name the space to delete."
        )
    return going
