"""When the model is loaded, once and by whom; how the embedder ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from muniment.errors import ConfigurationError, EmbedderUnavailable
from muniment.ports import Embedder, PluginContext
from muniment_embed_local import engines, torch_engine
from muniment_embed_local.embedder import LocalEmbedder, create
from muniment_embed_local.model import EngineName, Model
from muniment_embed_local.options import Options
from muniment_embed_local.worker import Priority, Worker

ENTRY_POINT = """
import sys, muniment_embed_local as plugin
plugin.muniment_plugins()
heavy = {"torch", "transformers", "sentence_transformers", "huggingface_hub", "onnxruntime", "tokenizers"}
heavy &= set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else 0)
"""
LEAVES_WHILE_LOADING = """
import asyncio, sys
from muniment_embed_local.embedder import LocalEmbedder
async def main():
    embedder = LocalEmbedder("all-MiniLM-L6-v2")
    await embedder.open()
    waiting = asyncio.create_task(embedder.embed_query("x"))
    await asyncio.sleep(float(sys.argv[1]))
asyncio.run(main())
"""
LOADS = """
import asyncio, sys
from muniment_embed_local.embedder import LocalEmbedder
from muniment_embed_local.options import Options
async def main():
    embedder = LocalEmbedder(sys.argv[1], Options(engine=sys.argv[2]))
    await embedder.open()
    await embedder.embed_passages(["a", "word " * 2000])
    await embedder.count_tokens(["word " * 2000])
    await embedder.close()
asyncio.run(main())
"""


def test_the_entry_point_imports_no_model_library() -> None:
    """The module that discovery imports brings in neither PyTorch nor a model library."""
    subprocess.run([sys.executable, "-c", ENTRY_POINT], check=True, timeout=60)


@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_loading_and_embedding_print_nothing(place: Path, engine: EngineName) -> None:
    """Nothing reaches stdout, which a protocol may own, nor a progress bar or a warning stderr."""
    command = [sys.executable, "-W", "error", "-c", LOADS, str(place), engine]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout == ""
    assert done.stderr == ""


def test_the_interpreter_leaves_while_a_model_loads(weights: Path) -> None:
    """The end of the process does not wait for the whole load, and is a clean one."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LEAVES_WHILE_LOADING, "0.5"], timeout=120, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert time.monotonic() - started < 60


async def test_it_is_ready_after_its_first_use(embedder: LocalEmbedder) -> None:
    """``open`` loads nothing; the first use does; ``close`` ends it; a second ``open`` begins again."""
    assert isinstance(embedder, Embedder)
    assert not embedder.ready
    await embedder.embed_query("first")
    assert embedder.ready
    await embedder.close()
    await embedder.close()
    assert not embedder.ready
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await embedder.embed_query("closed")
    await embedder.open()
    assert len(await embedder.embed_query("again")) == 384


async def test_concurrent_first_uses_load_once(embedder: LocalEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask first, the model is loaded once."""
    loads = _counted(monkeypatch)
    await asyncio.gather(embedder.space(), embedder.embed_query("a"), embedder.count_tokens(["b"]), embedder.space())
    assert len(loads) == 1


async def test_a_failed_load_is_shared_and_can_be_tried_again(weights: Path, tmp_path: Path) -> None:
    """Those who waited for a failed load get its refusal; who asks afterwards makes it be tried again."""
    directory = tmp_path / "all-MiniLM-L6-v2"
    directory.mkdir()
    for file in weights.iterdir():
        (directory / file.name).symlink_to(file)
    (directory / "modules.json").unlink()
    (directory / "modules.json").write_text("{ damaged")
    embedder = LocalEmbedder(str(directory))
    await embedder.open()
    first, second = await asyncio.gather(embedder.space(), embedder.space(), return_exceptions=True)
    assert isinstance(first, ConfigurationError)
    assert first is second
    assert str(directory) in first.message
    assert not embedder.ready
    (directory / "modules.json").unlink()
    (directory / "modules.json").symlink_to(weights / "modules.json")
    assert (await embedder.space()).model == "all-MiniLM-L6-v2"
    await embedder.close()


async def test_close_does_not_wait_for_a_load(embedder: LocalEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that cannot be interrupted is left behind; who waits behind it is refused when it ends."""
    hold = threading.Event()
    begun = threading.Event()
    monkeypatch.setattr("muniment_embed_local.embedder.CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(torch_engine, "import_libraries", _then(lambda _: None, hold, begun))
    uses = [asyncio.create_task(embedder.embed_query(text)) for text in ("loads", "waits")]
    await asyncio.to_thread(begun.wait, 30)
    async with asyncio.timeout(5):
        await embedder.close()
    hold.set()
    for use in uses:
        with pytest.raises(EmbedderUnavailable, match="closed"):
            await use
    assert not embedder.ready


async def test_the_event_loop_runs_while_the_model_loads(
    embedder: LocalEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that the model does blocks the loop (TRA-07 rests on it)."""
    hold = threading.Event()
    monkeypatch.setattr(torch_engine, "import_libraries", _then(torch_engine.import_libraries, hold))
    use = asyncio.create_task(embedder.embed_query("loads"))
    await asyncio.sleep(0.05)
    assert not use.done()
    hold.set()
    await use


async def test_work_is_done_by_priority_and_can_be_taken_back() -> None:
    """Queries come before counts before passages; what is cancelled before it begins is never done."""
    worker = Worker("test")
    hold, done = threading.Event(), list[str]()
    blocker = asyncio.create_task(worker.run(Priority.PASSAGES, lambda: hold.wait(30)))
    await asyncio.sleep(0.05)
    order = [Priority.PASSAGES, Priority.COUNT, Priority.QUERY, Priority.QUERY]
    tasks = [
        asyncio.create_task(worker.run(priority, lambda name=f"{priority.name}-{place}": done.append(name)))
        for place, priority in enumerate(order)
    ]
    await asyncio.sleep(0.05)
    tasks[3].cancel()
    await asyncio.sleep(0)
    hold.set()
    await asyncio.gather(blocker, *tasks[:3])
    assert done == ["QUERY-2", "COUNT-1", "PASSAGES-0"]
    await worker.stop(patience=5)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"threads": 0}, "threads"),
        ({"threads": True}, "threads"),
        ({"threads": "2"}, "threads"),
        ({"model_name": ""}, "model_name"),
        ({"thread": 1}, "thread"),
        ({"model_name": "a b"}, "model_name"),
        ({"engine": "jax"}, "engine"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], named: str) -> None:
    """An option that is unknown or out of range is refused by its name."""
    with pytest.raises(ConfigurationError, match=f"^{named}, set in "):
        create(PluginContext(spec="local:all-MiniLM-L6-v2", data_dir=Path(), options=options))


def test_a_wrong_model_name_is_told_in_words() -> None:
    """Not by a pattern."""
    options = {"model_name": ""}
    with pytest.raises(ConfigurationError, match="must be a name of 1 to 200 letters, digits"):
        create(PluginContext(spec="local:all-MiniLM-L6-v2", data_dir=Path(), options=options))


async def test_threads_bound_the_computation(weights: Path) -> None:
    """``threads`` is what PyTorch computes with."""
    import torch

    embedder = LocalEmbedder(str(weights), Options(threads=1))
    await embedder.open()
    await embedder.space()
    assert await embedder._worker.run(Priority.QUERY, torch.get_num_threads) == 1  # pyright: ignore[reportPrivateUsage]
    await embedder.close()


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    loads: list[str] = []
    real = engines.load

    def load(name: str, directory: Path, options: Options, go_on: Callable[[], None], *, configured: str) -> Model:
        loads.append(name)
        return real(name, directory, options, go_on, configured=configured)

    monkeypatch.setattr(engines, "load", load)
    return loads


def _then(
    real: Callable[[int], None], hold: threading.Event, begun: threading.Event | None = None
) -> Callable[[int], None]:
    def held(threads: int) -> None:
        if begun:
            begun.set()
        assert hold.wait(30)
        real(threads)

    return held
