"""The reference storage and the hash embedder keep every invariant."""

from __future__ import annotations

from muniment.conformance.pytest_front import conformance_tests
from muniment.conformance.reference_target import embedder, storage

test_storage = conformance_tests(storage)
test_embedder = conformance_tests(embedder)
