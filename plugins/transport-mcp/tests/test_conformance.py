"""The conformance suite over stdio and over HTTP."""

from __future__ import annotations

from muniment.conformance.pytest_front import conformance_tests
from muniment_transport_mcp.conformance import target

test_conformance_over_stdio = conformance_tests(target("stdio:"))
test_conformance_over_http = conformance_tests(target("http:"))
test_transport_rules_over_stateless_stdio = conformance_tests(target("stdio:2026-07-28"), only=["TRA"])
test_transport_rules_over_http_with_a_handshake = conformance_tests(target("http:2025-11-25"), only=["TRA", "READ-05"])
