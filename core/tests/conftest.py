"""Targets that several tests of the suite need."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

import pytest

from muniment.conformance.reference_target import ReferenceSubject, ReferenceTarget
from muniment.conformance.target import NotRun
from muniment.ports import Create
from muniment.reference import ReferenceStorage
from muniment.reference.rows import MemoryRow


class LosesTags(ReferenceStorage):
    """A new memory loses its tags."""

    def created(self, mutation: Create, now: datetime) -> MemoryRow:
        return replace(super().created(mutation, now), tags=())


class WithoutFaults(ReferenceTarget):
    """A target that cannot make a write fail."""

    @property
    def can_fault(self) -> bool:
        return False


class Missing(ReferenceTarget):
    """A target whose server is not there."""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ReferenceSubject]:
        raise NotRun("the server is not installed; install it")
        yield  # pragma: no cover


@pytest.fixture
def losing_tags() -> ReferenceTarget:
    """A storage on which READ-03 fails."""
    return ReferenceTarget(LosesTags)


@pytest.fixture
def without_faults() -> ReferenceTarget:
    """A target with which MUT-13 is not exercised."""
    return WithoutFaults()


@pytest.fixture
def missing() -> ReferenceTarget:
    """A target that cannot be run here."""
    return Missing()
