"""Runs the judges, each against a server process of its own, and fails if one of them finds something.

The judges are those of ``package.json``, installed beside this file; ``README.md`` says which they are.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from http_api import http_api

HERE = Path(__file__).parent
MUNIMENT = (sys.executable, "-m", "muniment", "serve", "--storage", "memory:", "--embedder", "hash:", "--user", "ada")
HTTP = (*MUNIMENT, "--http", "127.0.0.1:0", "--no-auth")
FIXTURE = (sys.executable, str(HERE / "fixture.py"))

CALLERS = {"user": (), "agent": ("--agent", "ada/1"), "platform": ("--platform",)}
"""Options for each kind of caller, since each has tools of its own."""
ERAS = ("legacy", "modern")
REVISIONS = ("2025-11-25", "2026-07-28")
UNCOUNTED = ("http-header-validation", "http-custom-header-server-validation")
"""Scenarios that hold although 2026-07-28 was published without them."""

AUDIENCE = "https://memory.example"
LOGIN = """
storage = "memory:"
embedder = "hash:"
user = "ops"

[auth.issuers.corp]
issuer = "{provider}"
audience = "{audience}"
groups_claim = "groups"
read_scope = "memory:read"
write_scope = "memory:write"
leeway = 0
"""

START_SECONDS = 60
JUDGE_SECONDS = 600
END_SECONDS = 20

CONFIGURING = ("MUNIMENT_", "MCP_", "XDG_")
"""What the names of variables begin with that this user's own servers and clients are configured by."""

_ADDRESS = re.compile(r"^(?:muniment: )?serving \w+ at (\S+)$", re.MULTILINE)
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


class Failed(Exception):
    """A server did not start or end as it should; says what it said."""


class Bench:
    """Where judges and servers run: an empty directory, without this user's configuration."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(CONFIGURING)}
        path = f"{HERE / 'node_modules' / '.bin'}{os.pathsep}{inherited.get('PATH', '')}"
        self.environment = {**inherited, "HOME": str(directory), "PATH": path}
        self.failures = 0
        self._servers = count()

    @contextmanager
    def serving(self, command: Sequence[str]) -> Generator[str]:
        """A server process, by its address. It must leave with 0 when it is asked to."""
        log = self.directory / f"server-{next(self._servers)}.txt"
        with log.open("w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                command, cwd=self.directory, env=self.environment, stdin=subprocess.DEVNULL, stderr=errors
            )
        try:
            yield self._address(process, log)
            process.terminate()
            if code := process.wait(END_SECONDS):
                raise Failed(f"the server left with {code}\n{log.read_text(encoding='utf-8')}")
        except subprocess.TimeoutExpired:
            raise Failed(f"the server did not end\n{log.read_text(encoding='utf-8')}") from None
        finally:
            process.kill()
            process.wait()

    def judge(self, name: str, *command: str) -> None:
        """Run a judge and print its verdict, and all that it said where that is not good."""
        began = time.monotonic()
        # A session of its own, so that what it started can be ended with it.
        process = subprocess.Popen(
            command,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=JUDGE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            output += f"\nended, since it was not done after {JUDGE_SECONDS} seconds\n"
        output = _COLOUR.sub("", output)
        taken = f"{time.monotonic() - began:.0f} s"
        if process.returncode == 0:
            print(f"ok      {name} ({', '.join([*_counts(output), taken])})", flush=True)
        else:
            self.failures += 1
            print(f"FAILED  {name} ({taken}, exit code {process.returncode})\n{output}", flush=True)

    def _address(self, process: subprocess.Popen[bytes], log: Path) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if found := _ADDRESS.search(log.read_text(encoding="utf-8")):
                return found[1]
            time.sleep(0.1)
        raise Failed(f"the server did not start\n{log.read_text(encoding='utf-8')}")


def _counts(output: str) -> list[str]:
    """How many checks of the conformance suite hold, how many are known to be about something else, and how many
    requests were generated."""
    passed: list[str] = re.findall(r"^(?:Total|Passed): (\d+)", output, re.MULTILINE)
    known: list[str] = re.findall(r"^  ~ ", output, re.MULTILINE)
    generated: list[str] = re.findall(r"^  (\d+) generated", output, re.MULTILINE)
    counts = [f"{count} checks hold" for count in passed] + [f"{count} requests" for count in generated]
    return [*counts, f"{len(known)} are about what is not offered"] if known else counts


def clients(bench: Bench) -> None:
    """The TypeScript clients of both generations, over either carrier."""
    script = str(HERE / "clients.mjs")
    bench.judge("TypeScript clients, stdio", "node", script, "stdio", *MUNIMENT)
    with bench.serving(HTTP) as url:
        bench.judge("TypeScript clients, HTTP", "node", script, "http", url)


def inspector(bench: Bench) -> None:
    """The Inspector: every tool's schema can be used by every host, and a call succeeds."""
    for caller, options in CALLERS.items():
        with bench.serving((*HTTP, *options)) as url:
            for era in ERAS:
                ask = ("mcp-inspector", "--cli", url, "--protocol-era", era, "--method")
                bench.judge(f"Inspector, {era}: schemas for the {caller}", *ask, "tools/list", "--strict")
                named = ("--tool-name", "memory_list", "--tool-args-json", '{"limit": 3}')
                bench.judge(f"Inspector, {era}: a call of the {caller}", *ask, "tools/call", *named)


def suite(bench: Bench) -> None:
    """The official conformance suite, for both revisions."""
    with bench.serving(FIXTURE) as url:
        ask = ("conformance", "server", "--url", url)
        for revision in REVISIONS:
            known = ("--expected-failures", str(HERE / "not-offered.yml"))
            bench.judge(f"conformance suite, {revision}", *ask, "--requirements", revision, *known)
        for scenario in UNCOUNTED:
            bench.judge(f"conformance suite, {scenario}", *ask, "--scenario", scenario, "--spec-version", REVISIONS[-1])


def logins(bench: Bench) -> None:
    """A certified OpenID provider: whom it says that somebody is, over either protocol."""
    for spoken in ("http", "mcp"):
        with bench.serving(("node", str(HERE / "provider.mjs"), AUDIENCE)) as provider:
            configuration = bench.directory / "login.toml"
            configuration.write_text(LOGIN.format(provider=provider, audience=AUDIENCE), encoding="utf-8")
            serve = (sys.executable, "-m", "muniment", "serve", "--config", str(configuration))
            with bench.serving((*serve, "--transport", spoken, "--http", "127.0.0.1:0")) as url:
                script = str(HERE / "login.py")
                bench.judge(f"OpenID provider, {spoken}", sys.executable, script, provider, url, spoken)


def main() -> int:
    """Run all of them; 1 if one failed."""
    with TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        for judges in (clients, inspector, suite, logins, http_api):
            try:
                judges(bench)
            except Failed as failed:
                bench.failures += 1
                print(f"FAILED  {judges.__name__}: {failed}", flush=True)
    print(f"{bench.failures} failed" if bench.failures else "all judges are content", flush=True)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
