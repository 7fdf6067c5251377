"""The embedder under test, with the real weights of all-MiniLM-L6-v2 from their package, and no network."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read by huggingface_hub when it is imported

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from muniment.conformance.target import NotRun
from muniment_embed_local.conformance import DEFAULT, target
from muniment_embed_local.embedder import LocalEmbedder
from muniment_embed_local.weights import locate

REQUIRE = "MUNIMENT_CONFORMANCE_REQUIRE"


@pytest.fixture
def weights() -> Path:
    """The directory of the weights; without them the test is "not run", and failed where that is required."""
    try:
        target()
    except NotRun as missing:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(f"not run, and {REQUIRE}=1: {missing}")
        pytest.skip(f"NOT RUN: {missing}")
    directory = locate(DEFAULT.removeprefix("local:")).directory
    assert directory is not None
    return directory


@pytest.fixture
async def embedder(weights: Path) -> AsyncGenerator[LocalEmbedder]:
    """An open embedder; its model is loaded by the first use."""
    made = LocalEmbedder(DEFAULT.removeprefix("local:"))
    await made.open()
    yield made
    await made.close()
