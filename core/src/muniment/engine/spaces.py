"""How an embedder gets its space: registered, by its fingerprint found to be the one that it was, and made the active
one.

Owns what a fingerprint is and what is refused. What stands in the registry, and the way back, is ``space_registry``'s;
how a space gets its vectors is ``filling``'s.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from muniment.errors import ConfigurationError, EmbedderMismatch, EmbedderUnavailable
from muniment.limits import DIMENSIONS_MAX, DIMENSIONS_MIN
from muniment.ports import Embedder, RegisteredSpace, Space, SpaceStorage, Storage, Vectors

log = logging.getLogger(__name__)

PROBES = (
    "The quick brown fox jumps over the lazy dog.",
    "Nightly backups are kept for thirty days in another region.",
    "def parse(line: str) -> dict[str, int]: ...",
    "我们选择了数据库。",
)
"""Sentences whose vectors are a space's fingerprint."""
PROBE_COSINE_MIN = 0.999
"""Below this cosine between a stored probe vector and a new one, the model is another one."""


async def register(storage: Storage, embedder: Embedder) -> Space:
    """The embedder's space, registered, or compared with what is registered; which space is active stays as it is.

    Raises EmbedderMismatch for another model under a name that is taken, ConfigurationError for dimensions that no
    storage keeps, EmbedderUnavailable.
    """
    space = await embedder.space()
    check_dimensions(space, embedder.name)
    probes = check_vectors(await embedder.embed_passages(PROBES), len(PROBES), space)
    compare(space, await storage.register_space(space, probes), probes)
    return space


async def activate(storage: Storage, space: Space, embedder: str) -> None:
    """Make a registered space the active one, and log where that changes which one it is.

    Nothing is done where the storage's plugin keeps no registry.
    """
    registry = registry_of(storage)
    if registry is None:
        return
    before = _active(await registry.list_spaces())
    if not await registry.activate_space(space.id, embedder):
        return
    if before is None:
        log.info("the active space is %s, of embedder %s", space.id, embedder)
        return
    log.warning(
        "the active space is %s now, of embedder %s; before it was %s, of embedder %s. To go back, configure that "
        "embedder and restart: its vectors are kept until muniment embeddings prune",
        space.id,
        embedder,
        before.space.id,
        before.embedder,
    )


def registry_of(storage: object) -> SpaceStorage | None:
    """The storage as one that keeps a registry of spaces; None for a plugin of a contract before 1.2.

    It is asked for its methods: one that stands behind another object has them all the same.
    """
    methods = ("list_spaces", "activate_space", "space_progress", "lease_unembedded", "drop_space")
    return cast(SpaceStorage, storage) if all(callable(getattr(storage, name, None)) for name in methods) else None


def check_dimensions(space: Space, embedder: str) -> None:
    """Raises ConfigurationError for a space that no storage keeps."""
    if not DIMENSIONS_MIN <= space.dimensions <= DIMENSIONS_MAX:
        raise ConfigurationError(
            f"embedder {embedder}: its vectors have {space.dimensions} dimensions, and {DIMENSIONS_MIN} to "
            f"{DIMENSIONS_MAX} can be kept; choose another model, or fewer dimensions where the model has them."
        )


def check_vectors(vectors: ArrayLike, count: int, space: Space) -> Vectors:
    """Vectors fit to be stored, in single precision. Raises EmbedderUnavailable where the embedder broke its word."""
    try:
        with np.errstate(over="ignore"):
            found = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError):
        found = np.zeros(0, dtype=np.float32)
    if found.shape != (count, space.dimensions) or not np.isfinite(found).all():
        raise EmbedderUnavailable(
            f"The embedder {space.id} gave {found.shape} numbers, not all usable, for {count} texts of "
            f"{space.dimensions} dimensions; update or replace it."
        )
    return found


def compare(space: Space, stored: Vectors, fresh: Vectors) -> None:
    """Refuse another model under a name that is taken. Raises EmbedderMismatch."""
    if stored.shape == fresh.shape:
        with np.errstate(divide="ignore", invalid="ignore"):
            lengths = np.linalg.norm(stored, axis=1) * np.linalg.norm(fresh, axis=1)
            cosines = (stored * fresh).sum(axis=1) / lengths
        if bool((cosines >= PROBE_COSINE_MIN).all()):
            return
    raise EmbedderMismatch(
        f"The model behind {space.id} is not the one that made its stored vectors; restore that model, or give the "
        "new one a name of its own, such as by model_name in its plugin's table of the configuration."
    )


def _active(found: Sequence[RegisteredSpace]) -> RegisteredSpace | None:
    activated = [(one.activated_at, one.space.id, one) for one in found if one.activated_at is not None]
    return max(activated)[2] if activated else None
