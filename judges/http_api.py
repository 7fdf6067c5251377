"""The judges of what is served over HTTP: of its OpenAPI document, and of every operation by generated requests.

Each kind of caller has a token, since each reaches operations of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from run import Bench

HERE = Path(__file__).parent
SCHEMATHESIS = HERE / ".venv" / "bin" / "schemathesis"

CALLERS: Mapping[str, tuple[str, ...]] = {
    "user": ("--scope", "write"),
    "agent": ("--scope", "write", "--scope", "agent=ada/1"),
    "platform": ("--scope", "write", "--scope", "platform"),
}
"""What the token of each kind of caller allows."""
EXAMPLES = 20
"""Requests that are generated for each operation, for each caller; the phases before that make many more."""
SEED = 1

CONFIGURATION = """
storage = "sqlite:{directory}/judged.sqlite"
embedder = "hash:"
log_level = "error"

[auth]
"""


def http_api(bench: Bench) -> None:
    """Spectral and openapi-spec-validator on the document, schemathesis on the server."""
    configuration = bench.directory / "http-api.toml"
    configuration.write_text(CONFIGURATION.format(directory=bench.directory), encoding="utf-8")
    configured = ("--config", str(configuration))
    document = bench.directory / "openapi.json"
    document.write_text(_said(bench, "openapi", *configured), encoding="utf-8")
    bench.judge("openapi-spec-validator", sys.executable, "-m", "openapi_spec_validator", str(document))
    ruleset = str(HERE / "spectral.yaml")
    bench.judge("Spectral", "spectral", "lint", str(document), "--ruleset", ruleset, "--fail-severity", "warn")
    tokens = {
        caller: _said(bench, "token", "create", "--user", "ada", *scopes, *configured).strip()
        for caller, scopes in CALLERS.items()
    }
    serve = ("serve", "--transport", "http", "--http", "127.0.0.1:0", *configured)
    with bench.serving((sys.executable, "-m", "muniment", *serve)) as url:
        for caller, token in tokens.items():
            bench.judge(
                f"schemathesis, {caller}",
                *(str(SCHEMATHESIS), "--config-file", str(HERE / "schemathesis.toml"), "run", f"{url}/openapi.json"),
                *("--seed", str(SEED), "-n", str(EXAMPLES), "-H", f"Authorization: Bearer {token}"),
            )


def _said(bench: Bench, *arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "muniment", *arguments]
    done = subprocess.run(
        command, cwd=bench.directory, env=bench.environment, capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments[:2])} left with {done.returncode}\n{done.stderr}")
    return done.stdout
