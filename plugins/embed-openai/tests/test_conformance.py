"""The suite's judgement of this plugin: one test for each invariant of an embedder."""

from __future__ import annotations

from muniment.conformance.pytest_front import conformance_tests
from muniment_embed_openai.conformance import target

test_conformance = conformance_tests(target)
