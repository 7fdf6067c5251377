"""Configuration: which source wins, what is refused, and that no secret is shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

import pytest
from pydantic import BaseModel

from muniment import config
from muniment.config import Settings, redact
from muniment.errors import ConfigurationError
from muniment.models import Agent


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, and no file where one would be looked for."""
    for name in list(os.environ):
        if name.startswith(config.PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def test_defaults() -> None:
    """Nothing set: an embedded server, a local model, and who the operating system says it is."""
    settings = Settings.load()

    assert (settings.storage, settings.embedder) == ("embedded:", "local:all-MiniLM-L6-v2")
    assert settings.user == config.default_user()
    assert settings.origin("storage") == "default"
    assert settings.file is None


def test_flags_over_variables_over_file_over_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source gives way to the one above it, key by key, and is remembered."""
    file = Path("muniment.toml")
    file.write_text('user = "file"\nproject = "file"\nstorage = "file:"\nlog_level = "info"\n', encoding="utf-8")
    monkeypatch.setenv("MUNIMENT_USER", "variable")
    monkeypatch.setenv("MUNIMENT_PROJECT", "variable")
    monkeypatch.setenv("MUNIMENT_EMBEDDER", "")

    settings = Settings.load({"user": "flag", "storage": None})

    assert (settings.user, settings.project, settings.storage) == ("flag", "variable", "file:")
    assert [settings.origin(key) for key in ("user", "project", "storage", "embedder")] == [
        "--user",
        "MUNIMENT_PROJECT",
        str(file.absolute()),
        "default",
    ]


def test_where_the_file_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The named file, else the working directory's, else the user's; never two of them."""
    users = tmp_path / "config" / "muniment" / "muniment.toml"
    users.parent.mkdir(parents=True)
    users.write_text('user = "users"\nproject = "users"\n', encoding="utf-8")
    assert Settings.load().user == "users"

    Path("muniment.toml").write_text('user = "here"\n', encoding="utf-8")
    assert (Settings.load().user, Settings.load().project) == ("here", None)

    named = tmp_path / "named.toml"
    named.write_text('user = "named"\n', encoding="utf-8")
    monkeypatch.setenv("MUNIMENT_CONFIG", str(named))
    assert Settings.load().user == "named"
    assert Settings.load({"config": str(Path("muniment.toml"))}).user == "here"


def test_lists_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are a list in a file and separated by commas in a variable; a plugin's table is its own."""
    Path("muniment.toml").write_text('groups = ["a", "b"]\n[plugins.acme]\npool = 3\n', encoding="utf-8")
    assert Settings.load().groups == {"a", "b"}
    assert Settings.load().plugins == {"acme": {"pool": 3}}

    monkeypatch.setenv("MUNIMENT_GROUPS", "c, d")
    assert Settings.load().groups == {"c", "d"}
    assert Settings.load({"groups": ["e,f", "g"]}).groups == {"e,f", "g"}


def test_agents_and_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent is NAME/INSTANCE, split at the last slash; nobody is an agent or the platform by default."""
    settings = Settings.load()
    assert (settings.agent, settings.platform, settings.memory_cue) == (None, False, False)
    assert settings.shown()["platform"] == "false"

    Path("muniment.toml").write_text('agent = "acme/ada/1"\nmemory_cue = true\n', encoding="utf-8")
    settings = Settings.load()
    assert (settings.agent, settings.memory_cue) == (Agent(name="acme/ada", instance="1"), True)
    assert settings.shown()["agent"] == "acme/ada/1"

    monkeypatch.setenv("MUNIMENT_AGENT", "bert/2")
    assert Settings.load().agent == Agent(name="bert", instance="2")
    assert Settings.load({"agent": "carl/3", "memory_cue": False}).memory_cue is False


def test_variables_of_the_suite_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """What begins with MUNIMENT_CONFORMANCE_ is the suite's."""
    monkeypatch.setenv("MUNIMENT_CONFORMANCE_REQUIRE", "1")

    Settings.load()


def tables(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """Every table of the configuration that has keys of its own, by the keys that lead there."""
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not Agent:
                below = (*path, name, "corp") if get_origin(field.annotation) is dict else (*path, name)
                yield below, kind
                yield from tables(kind, below)


def test_a_misspelt_key_is_named_in_every_table() -> None:
    """With the one that was probably meant, whichever table it is in; one that is missing is not said before it."""
    found = dict(tables(Settings))
    assert {".".join(path) for path in found} == {"auth", "auth.issuers.corp", "limits"}
    for path, model in found.items():
        for key in model.model_fields:
            Path("muniment.toml").write_text(f"[{'.'.join(path)}]\n{key}x = 7\n", encoding="utf-8")
            with pytest.raises(ConfigurationError) as refusal:
                Settings.load()
            assert refusal.value.message.startswith(f"{'.'.join(path)}.{key}x, set in ")
            assert refusal.value.message.endswith(f"muniment.toml, is no setting; did you mean {key}?")


@pytest.mark.parametrize(
    ("variables", "toml", "flags", "parts"),
    [
        ({"MUNIMENT_STORGE": "x"}, "", {}, ["MUNIMENT_STORGE", "environment", "did you mean MUNIMENT_STORAGE?"]),
        ({}, 'embeder = "none"', {}, ["embeder", "muniment.toml", "did you mean embedder?"]),
        ({}, 'config = "x"', {}, ["config", "muniment.toml", "is no setting"]),
        ({}, "[plugin.x]\na = 1", {}, ["plugin", "did you mean plugins?"]),
        ({}, "[limits]\nbody_byte = 7", {}, ["limits.body_byte", "muniment.toml", "did you mean body_bytes?"]),
        ({"MUNIMENT_LIMITS": '{"brst": 7}'}, "", {}, ["limits.brst", "MUNIMENT_LIMITS", "did you mean burst?"]),
        ({}, "limits = 7", {}, ["limits", "muniment.toml", "must be a table"]),
        ({}, "", {"stroage": "x"}, ["--stroage", "command line", "did you mean --storage?"]),
        ({"MUNIMENT_EMBED_TIMEOUT": "soon"}, "", {}, ["embed_timeout", "MUNIMENT_EMBED_TIMEOUT", "number"]),
        ({}, "embed_timeout = 0", {}, ["embed_timeout", "muniment.toml", "greater than 0"]),
        ({}, "", {"embed_timeout": "inf"}, ["embed_timeout", "--embed-timeout"]),
        ({}, "", {"storage": "embedded"}, ["storage", "--storage", "scheme"]),
        ({}, "", {"embedder": "None"}, ["embedder", "--embedder", "must be none"]),
        ({}, 'log_level = "loud"', {}, ["log_level", "muniment.toml", "'debug', 'info'"]),
        ({}, 'project = "with space"', {}, ["project", "muniment.toml"]),
        ({}, "user = 7", {}, ["user", "muniment.toml", "string"]),
        ({}, 'plugins = "x"', {}, ["plugins", "muniment.toml"]),
        ({}, "[plugins]\nacme = 3", {}, ["plugins.acme", "muniment.toml"]),
        ({"MUNIMENT_PLUGINS": "{"}, "", {}, ["plugins", "MUNIMENT_PLUGINS", "JSON"]),
        ({"MUNIMENT_USER": "u" * 201}, "", {}, ["user", "MUNIMENT_USER", "200"]),
        ({}, "", {"user": ""}, ["--user", "empty"]),
        ({}, 'user = ""', {}, ["user", "muniment.toml", "at least 1"]),
        ({"MUNIMENT_USER": " "}, "", {}, ["user", "MUNIMENT_USER", "blank"]),
        ({}, "", {"user": "a\nb"}, ["user", "--user", "control character"]),
        ({}, "", {"groups": ["a", "b\x1b[0m"]}, ["groups", "--group", "control character"]),
        ({}, "", {"groups": [""]}, ["groups", "--group"]),
        ({}, "user = \nproject = 1", {}, ["muniment.toml", "TOML", "line 1"]),
        ({"MUNIMENT_CONFIG": "/not/there.toml"}, "", {}, ["/not/there.toml", "MUNIMENT_CONFIG"]),
        ({}, "", {"config": "."}, ["cannot be read"]),
        ({}, 'agent = "ada"', {}, ["agent", "muniment.toml", "NAME/INSTANCE"]),
        ({}, "agent = 7", {}, ["agent", "muniment.toml", "NAME/INSTANCE"]),
        ({"MUNIMENT_AGENT": "ada/"}, "", {}, ["agent", "MUNIMENT_AGENT", "NAME/INSTANCE"]),
        ({}, "", {"agent": "a b/1"}, ["agent", "--agent", "NAME/INSTANCE"]),
        ({}, "", {"agent": f"{'a' * 65}/1"}, ["agent", "--agent", "64"]),
        ({"MUNIMENT_PLATFORM": "perhaps"}, "", {}, ["platform", "MUNIMENT_PLATFORM", "boolean"]),
        ({}, "memory_cue = []", {}, ["memory_cue", "muniment.toml", "boolean"]),
        ({"MUNIMENT_AGENT": "a/1"}, "", {"platform": True}, ["agent (MUNIMENT_AGENT)", "platform (--platform)"]),
        ({}, f"a = {'[' * 3_000}{']' * 3_000}", {}, ["muniment.toml", "nested too deeply"]),
        ({}, f"a = {'1' * 10_000}", {}, ["muniment.toml", "a number with too many digits"]),
        ({}, 'data_dir = "\\u0000"', {}, ["data_dir", "muniment.toml", "control character"]),
        ({}, 'data_dir = "a\\nb"', {}, ["data_dir", "muniment.toml", "control character"]),
        ({}, 'data_dir = ""', {}, ["data_dir", "muniment.toml", "is blank"]),
        ({}, "data_dir = 1", {}, ["data_dir", "muniment.toml", "must be a text; correct it"]),
        ({}, "embed_timeout = true", {}, ["embed_timeout", "muniment.toml", "must be a number of seconds"]),
        ({}, '"" = 1', {}, ['"", set in', "muniment.toml", "is no setting"]),
        ({}, '[limits]\n"" = 1', {}, ['limits."", set in', "muniment.toml", "is no setting"]),
    ],
)
def test_what_is_wrong_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    toml: str,
    flags: dict[str, object],
    parts: list[str],
) -> None:
    """One sentence that names the key, where it was set, and what to do."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if toml:
        Path("muniment.toml").write_text(toml, encoding="utf-8")

    with pytest.raises(ConfigurationError) as refusal:
        Settings.load(flags)

    assert "\n" not in refusal.value.message
    for part in parts:
        assert part in refusal.value.message


@pytest.mark.parametrize("key", ["AUTH", "LIMITS", "PLUGINS"])
def test_json_that_is_nested_too_deeply_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any other that is wrong."""
    monkeypatch.setenv(f"MUNIMENT_{key}", "[" * 100_000)

    with pytest.raises(ConfigurationError, match="a JSON object"):
        Settings.load()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="not run: this system has no pipes with names")
def test_only_files_are_read() -> None:
    """A pipe may never end, and is refused by its name; the null device is an empty file."""
    os.mkfifo("pipe.toml")
    with pytest.raises(ConfigurationError, match=r"pipe\.toml is no file but a pipe"):
        Settings.load({"config": "pipe.toml"})

    assert Settings.load({"config": os.devnull}).origin("user") == "default"


def test_a_file_that_is_not_text() -> None:
    """A file of another encoding is told so."""
    Path("muniment.toml").write_bytes(b'user = "\xff"\n')

    with pytest.raises(ConfigurationError, match="UTF-8"):
        Settings.load()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("postgresql://me:s3cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:s3/c@r:et@host/db", "postgresql://me:***@host/db"),
        ("postgresql://:s3cret@host/db", "postgresql://:***@host/db"),
        ("postgresql://host/db?user=me&password=s3cret&a=b", "postgresql://host/db?user=me&password=***&a=b"),
        ("host=h password='s3 cret' user=me", "host=h password=*** user=me"),
        ("host=h password=s3,cret user=me", "host=h password=*** user=me"),
        ("postgresql://h/?password=s3,cret&a=b", "postgresql://h/?password=***&a=b"),
        ("unexpected token: foo", "unexpected token: foo"),
        ("mongodb://h/?a=AWS_SESSION_TOKEN:t0ken,B:c&d=e", "mongodb://h/?a=AWS_SESSION_TOKEN:***,B:c&d=e"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("embedded:", "embedded:"),
    ],
)
def test_secrets_are_not_shown(value: str, shown: str) -> None:
    """A password is left out wherever a value is shown."""
    assert redact(value) == shown


def test_limits_are_a_table_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table in a file, JSON in a variable; none of it is no limit but that of a request's size."""
    assert Settings.load().limits.rate is None

    Path("muniment.toml").write_text("[limits]\nrequests_per_minute = 60\nbody_bytes = 2_000\n", encoding="utf-8")
    limits = Settings.load().limits
    assert (limits.rate, limits.body_bytes) == ((60, 10), 2_000)

    monkeypatch.setenv("MUNIMENT_LIMITS", '{"requests_per_minute": 60, "burst": 3}')
    assert Settings.load().limits.rate == (60, 3)
    assert Settings.load().shown()["limits.burst"] == "3"


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        ("burst = 3", ["limits", "requests_per_minute"]),
        ("requests_per_minute = 0", ["limits.requests_per_minute", "greater than or equal to 1"]),
        ("body_bytes = 43_000_001", ["limits.body_bytes", "43000000"]),
        ("body_bytes = 100", ["limits.body_bytes", "1024"]),
        ("per_second = 3", ["limits.per_second"]),
    ],
)
def test_limits_that_limit_nothing_or_too_much_are_refused(table: str, parts: list[str]) -> None:
    """By the key and what is allowed."""
    Path("muniment.toml").write_text(f"[limits]\n{table}\n", encoding="utf-8")

    with pytest.raises(ConfigurationError) as refusal:
        Settings.load()

    for part in parts:
        assert part in refusal.value.message


def test_a_refused_value_is_not_repeated() -> None:
    """A value that is wrong may hold a secret all the same."""
    with pytest.raises(ConfigurationError) as refusal:
        Settings.load({"storage": "s3cret without scheme"})

    assert "s3cret" not in refusal.value.message


def test_what_a_report_shows() -> None:
    """Every key, with secrets redacted, those in plugins' tables included."""
    Path("muniment.toml").write_text(
        'storage = "postgresql://me:s3cret@host/db"\n[plugins.acme]\napi_key = "s3cret"\npool = 3\n',
        encoding="utf-8",
    )

    shown = Settings.load().shown()

    assert "s3cret" not in str(shown)
    assert shown["plugins.acme.pool"] == "3"
    assert shown["limits.body_bytes"] == "43000000"
    assert set(config.keys()) - {"config", "limits", "plugins"} <= set(shown)


def test_the_data_directory_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever was written, relative or below the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))

    assert Settings.load({"data_dir": "here"}).data_dir == Path.cwd() / "here"
    assert Settings.load({"data_dir": "~/there"}).data_dir == tmp_path / "there"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("embedded:", "embedded:"),
        ("embedded:rel", "embedded:HERE/rel"),
        ("embedded:~/rel", "embedded:HOME/rel"),
        ("embedded:/srv/x", "embedded:/srv/x"),
        ("sqlite:", "sqlite:"),
        ("sqlite:rel.db", "sqlite:HERE/rel.db"),
        ("sqlite::memory:", "sqlite::memory:"),
        ("acme:./rel", "acme:HERE/rel"),
        ("acme:rel", "acme:rel"),
        ("postgresql://host/rel", "postgresql://host/rel"),
    ],
)
def test_a_storage_s_path_is_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, expected: str
) -> None:
    """What names a directory names the same one wherever the configuration is used."""
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = expected.replace("HERE", str(Path.cwd())).replace("HOME", str(tmp_path))

    assert Settings.load({"storage": value}).storage == expected


def test_a_path_in_a_file_is_beside_the_file(tmp_path: Path) -> None:
    """Who names the file may be started anywhere, and finds the same data and the same model."""
    file = tmp_path / "elsewhere" / "named.toml"
    file.parent.mkdir()
    file.write_text('storage = "embedded:rel"\nembedder = "local:./model"\ndata_dir = "data"\n', encoding="utf-8")

    settings = Settings.load({"config": str(file)})

    assert settings.storage == f"embedded:{file.parent / 'rel'}"
    assert settings.embedder == f"local:{file.parent / 'model'}"
    assert settings.data_dir == file.parent / "data"
    assert Settings.load({"embedder": "local:all-MiniLM-L6-v2"}).embedder == "local:all-MiniLM-L6-v2"


def test_a_file_with_a_byte_order_mark() -> None:
    """Some editors write one; it is no part of the first key."""
    Path("muniment.toml").write_bytes(b'\xef\xbb\xbfuser = "alice"\n')

    assert Settings.load().user == "alice"


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    """It is named, with what to do."""
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()

    with pytest.raises(ConfigurationError, match="working directory"):
        Settings.load()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="not run: this system has no root")
def test_the_default_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user's, and for root one outside its home, which the embedded server's own user can enter."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert Settings.load().data_dir == Path("/var/lib/muniment")

    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Settings.load().data_dir == tmp_path / "muniment"
