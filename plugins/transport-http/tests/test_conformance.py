"""The conformance suite over HTTP."""

from __future__ import annotations

from muniment.conformance.pytest_front import conformance_tests
from muniment_transport_http.conformance import target

test_conformance = conformance_tests(target())
