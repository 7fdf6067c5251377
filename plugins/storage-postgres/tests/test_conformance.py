"""The conformance suite on an embedded server."""

from __future__ import annotations

from muniment.conformance.pytest_front import conformance_tests
from muniment_storage_postgres.conformance import target

test_conformance = conformance_tests(target)
