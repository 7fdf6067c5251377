"""What is downloaded from a model hub for which engine: the real client against a hub of ours on loopback."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

REPOSITORY = "some-organisation/some-model"
REVISION = "a" * 40
SERVES = """
import asyncio, sys
from muniment.errors import MunimentError
from muniment_embed_local import torch_engine
from muniment_embed_local.embedder import LocalEmbedder
from muniment_embed_local.options import Options
if sys.argv[1] == "plain":
    torch_engine.is_installed = lambda: False
async def main():
    embedder = LocalEmbedder("some-organisation/some-model", Options(engine=sys.argv[2]))
    try:
        await embedder.open()
        print((await embedder.space()).id, "torch" in sys.modules)
    except MunimentError as error:
        print(error.code, error.message)
    await embedder.close()
asyncio.run(main())
"""
SPACE = f"local:{REPOSITORY}:384:mean:unit:254"
HEAVY = ("model.safetensors", "onnx/model.onnx", "onnx/model_int8.onnx")


@pytest.fixture
def repository(both: Path, tmp_path: Path) -> Path:
    """The files of a repository as hubs have them: weights for PyTorch, an ONNX file, and another that is reduced."""
    directory = tmp_path / "repository"
    shutil.copytree(both, directory)
    (directory / "onnx" / "model_int8.onnx").write_bytes(b"reduced")
    return directory


@contextmanager
def hub(directory: Path) -> Generator[tuple[str, list[str]]]:
    """A hub with one repository; its address, and the names of the files that were fetched from it."""
    fetched: list[str] = []
    names = [file.relative_to(directory).as_posix() for file in sorted(directory.rglob("*")) if file.is_file()]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path in (f"/api/models/{REPOSITORY}", f"/api/models/{REPOSITORY}/revision/main"):
                self._json({"id": REPOSITORY, "sha": REVISION, "siblings": [{"rfilename": name} for name in names]})
            elif path == f"/api/models/{REPOSITORY}/tree/{REVISION}":
                self._json([{"type": "file", "path": name, "size": self._size(name), "oid": "0"} for name in names])
            elif path.startswith(f"/{REPOSITORY}/resolve/{REVISION}/"):
                self._file(path.removeprefix(f"/{REPOSITORY}/resolve/{REVISION}/"))
            else:
                self._send(404, b"", {})

        do_HEAD = do_GET

        def _size(self, name: str) -> int:
            return (directory / name).stat().st_size

        def _json(self, answer: object) -> None:
            self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

        def _file(self, name: str) -> None:
            content = (directory / name).read_bytes()
            if self.command == "GET":
                fetched.append(name)
            tag = hashlib.sha1(content, usedforsecurity=False).hexdigest()
            self._send(200, content, {"ETag": f'"{tag}"', "X-Repo-Commit": REVISION})

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", fetched
    server.shutdown()
    server.server_close()
    thread.join()


def served(address: str, home: Path, installed: str, *, engine: str = "auto", offline: str = "0") -> str:
    """What an embedder of the repository's model says of itself, with PyTorch (``full``) or without (``plain``)."""
    environment = {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_OFFLINE": offline, "PATH": ""}
    command = [sys.executable, "-c", SERVES, installed, engine]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_onnx_file_is_all_that_is_downloaded(repository: Path, tmp_path: Path) -> None:
    """Of the weights the ONNX file alone comes, once; afterwards neither the hub nor PyTorch is needed."""
    with hub(repository) as (address, fetched):
        assert served(address, tmp_path / "home", "plain") == f"{SPACE} False"
        assert set(HEAVY) & set(fetched) == {"onnx/model.onnx"}
        assert "1_Pooling/config.json" in fetched
        fetched.clear()
        assert served(address, tmp_path / "home", "plain") == f"{SPACE} False"
        assert fetched == []
    assert served(address, tmp_path / "home", "full", offline="1") == f"{SPACE} False"
    refused = served(address, tmp_path / "home", "full", engine="torch", offline="1")
    assert refused.startswith("configuration_error")
    assert "not in the cache of this machine" in refused


@pytest.mark.parametrize("kind", ["pooling", "none", "reduced"])
def test_a_model_for_pytorch_comes_with_its_weights(repository: Path, tmp_path: Path, kind: str) -> None:
    """What the ONNX engine cannot compute is seen from the small files where they say so, and is PyTorch's."""
    if kind == "pooling":
        (repository / "1_Pooling" / "config.json").write_text(
            '{"word_embedding_dimension": 384, "pooling_mode": "max"}'
        )
    elif kind == "none":
        (repository / "onnx" / "model.onnx").unlink()
    else:
        (repository / "onnx" / "model.onnx").unlink()
        (repository / "onnx" / "model.onnx").write_bytes(b"no ONNX file at all")
    with hub(repository) as (address, fetched):
        refused = served(address, tmp_path / "plain", "plain")
        assert refused.startswith("configuration_error")
        assert "only PyTorch can compute it" in refused
        assert "model.safetensors" not in fetched
        assert ("onnx/model.onnx" in fetched) == (kind == "reduced")
        space = SPACE.replace("mean", "max") if kind == "pooling" else SPACE
        assert served(address, tmp_path / "full", "full") == f"{space} True"
        assert "model.safetensors" in fetched


def test_a_model_that_is_cached_for_pytorch_stays_with_it(repository: Path, tmp_path: Path) -> None:
    """Files that are on this machine are used before others are downloaded."""
    with hub(repository) as (address, fetched):
        assert served(address, tmp_path / "home", "full", engine="torch") == f"{SPACE} True"
        assert "onnx/model.onnx" not in fetched
        fetched.clear()
        assert served(address, tmp_path / "home", "full") == f"{SPACE} True"
        assert fetched == []
        refused = served(address, tmp_path / "home", "plain", offline="1")
        assert "it has no ONNX file, so that only PyTorch can compute it" in refused
        assert served(address, tmp_path / "home", "plain") == f"{SPACE} False"
        assert fetched == ["onnx/model.onnx"]
