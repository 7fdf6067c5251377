"""An MCP client with a server of its own, as an agent's host is one; run as a script with the arguments of the server.

It writes memories, one after the other, each under an idempotency key of its own. Where its server dies it starts
another and sends the same again; so it does where the storage was not available. It reads orders from standard input,
line by line: ``tag NAME``, under which it goes on writing; ``list NAME``; ``leave``, as the end of the input is too.
What it prints, as JSON lines, is what it knows for sure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

PAUSE = 0.02
"""Seconds between two writes."""

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "abuse", "version": "1"},
}


class Gone(Exception):
    """The server has ended, or does not speak any more."""


class Server:
    """A server process over its standard streams."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._number = 0
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "muniment", "serve", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        say(server=self.process.pid)
        self.ask("initialize", INITIALIZE)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A tool's answer, or its refusal, which has a ``code``. Raises Gone."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        return json.loads(result["content"][0]["text"])

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request. Raises Gone."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                answer = json.loads(line)
            except ValueError:
                break  # the end of a server that was killed while it wrote
            if answer.get("id") == self._number:
                if "result" not in answer:
                    say(strange=answer)
                    break
                return answer["result"]
        raise Gone

    def leave(self) -> int:
        """Its exit status after its input has ended."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        return self.process.wait()

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Gone from error


class Writer:
    """Writes until it is told to leave."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._arguments = arguments
        self._log = log
        self._server: Server | None = None
        self._orders: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def run(self) -> None:
        """Until the end."""
        tag = ""
        while True:
            try:
                order, _, name = self._orders.get(timeout=None if not tag else PAUSE).partition(" ")
            except Empty:
                self._write(tag)
                continue
            if order == "leave":
                if self._server is not None:
                    say(left=self._server.leave())
                return
            if order == "tag":
                tag = name
            else:
                say(listed=name, memories=self._list(name))

    def _write(self, tag: str) -> None:
        key = uuid4().hex
        begun = time.monotonic()
        while "id" not in (answer := self._certain("memory_write", content=key, tags=[tag], idempotency_key=key)):
            if answer["code"] != "storage_unavailable":
                say(refused=answer)
                return
            say(unavailable=answer["message"])
            time.sleep(PAUSE)
        say(written=key, id=answer["id"], tag=tag, took=time.monotonic() - begun)

    def _list(self, tag: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        more: dict[str, str] = {}
        while True:
            page = self._certain("memory_list", tags=[tag], limit=200, **more)
            if "items" not in page:
                say(unavailable=page["message"])
                time.sleep(PAUSE)
                continue
            found += [(one["id"], one["content"]) for one in page["items"]]
            if not page.get("cursor"):
                return found
            more = {"cursor": page["cursor"]}

    def _certain(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """An answer, by as many servers as it takes."""
        while True:
            try:
                if self._server is None:
                    self._server = Server(self._arguments, self._log)
                return self._server.call(tool, **arguments)
            except Gone:
                if self._server is not None:
                    say(gone=self._server.leave())
                self._server = None
                time.sleep(PAUSE)

    def _listen(self) -> None:
        for line in sys.stdin:
            self._orders.put(line.strip())
        self._orders.put("leave")


def say(**fact: Any) -> None:
    """Tell who started this. Whoever is gone hears nothing, and the end of standard input tells that too."""
    with suppress(OSError):
        os.write(1, json.dumps({"at": time.monotonic(), **fact}).encode() + b"\n")


if __name__ == "__main__":
    Writer(sys.argv[2:], Path(sys.argv[1])).run()
