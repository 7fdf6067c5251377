"""The suite's judgement of this plugin: one test for each invariant of an embedder, for each of its engines."""

from __future__ import annotations

import pytest

from muniment.conformance.pytest_front import conformance_tests
from muniment_embed_local.conformance import MODEL, judged

test_conformance_onnx = pytest.mark.usefixtures("exported")(conformance_tests(lambda: judged(f"onnx:{MODEL}")))
test_conformance_torch = conformance_tests(lambda: judged(f"torch:{MODEL}"))
