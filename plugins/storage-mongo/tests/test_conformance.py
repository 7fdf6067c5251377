"""The conformance suite on a replica set of its own."""

from __future__ import annotations

from muniment.conformance.pytest_front import conformance_tests
from muniment_storage_mongo.conformance import target

test_conformance = conformance_tests(target)
