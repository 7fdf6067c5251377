"""Deliberately broken plugins, which prove that the suite can fail.

A mutant is a subclass of the reference storage or transport, of the embedder in ``provider`` or of the rules in
``core``. It breaks one named seam in a few lines, and declares the exact set of invariants that it must fail. Each
module holds those made for some invariants of a family and names them ``MUTANTS``; a new module is listed here and
nowhere else. ``rehearsal`` judges all of them.
"""

from __future__ import annotations

from muniment.conformance.mutants import (
    access,
    acknowledgement,
    admission,
    backlog,
    commits,
    digests,
    embedders,
    exchanges,
    lost_updates,
    names,
    patches,
    reads,
    restarts,
    scope,
    search,
    sections,
    spaces,
    tokens,
    trails,
    transports,
    vectors,
    versions,
    withheld,
)
from muniment.conformance.mutants.mutant import Mutant, Mutants, killed_by
from muniment.conformance.mutants.universal import UNIVERSAL

__all__ = ["MADE_FOR_ONE", "MUTANTS", "UNIVERSAL", "Mutant", "killed_by"]

_MODULES: tuple[Mutants, ...] = (
    versions.MUTANTS,
    patches.MUTANTS,
    commits.MUTANTS,
    restarts.MUTANTS,
    reads.MUTANTS,
    access.MUTANTS,
    names.MUTANTS,
    scope.MUTANTS,
    vectors.MUTANTS,
    spaces.MUTANTS,
    search.MUTANTS,
    sections.MUTANTS,
    exchanges.MUTANTS,
    lost_updates.MUTANTS,
    digests.MUTANTS,
    acknowledgement.MUTANTS,
    tokens.MUTANTS,
    backlog.MUTANTS,
    trails.MUTANTS,
    embedders.MUTANTS,
    transports.MUTANTS,
    admission.MUTANTS,
    withheld.MUTANTS,
)

MADE_FOR_ONE: tuple[Mutant, ...] = tuple(mutant for module in _MODULES for mutant in module)
"""Each made for one invariant."""
MUTANTS: tuple[Mutant, ...] = (*UNIVERSAL, *MADE_FOR_ONE)
