"""Discovery: real throw-away distributions with real entry points, good and broken, side by side."""

from __future__ import annotations

import importlib
import logging
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from muniment.config import Settings
from muniment.errors import ConfigurationError, PluginError
from muniment.hookspecs import CONTRACT, DoctorContext
from muniment.models import AuditRecord, Receipt
from muniment.plugins import Plugins

GOOD = """
from muniment.hookspecs import Descriptor, hookimpl

@hookimpl
def muniment_plugins():
    return [Descriptor(name={name!r}, kind={kind!r}, schemes=({scheme!r},), factory={factory!r}, summary="For tests.",
                       contract={contract!r})]
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution on the path: a module of the same name, and an entry point for it."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for key in ("storage", "embedder", "config", "plugins"):
        monkeypatch.delenv(f"MUNIMENT_{key.upper()}", raising=False)

    def write(name: str, source: str, *, entry: str | None = None) -> None:
        module = name.replace("-", "_")
        monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        info = tmp_path / f"{module}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[muniment]\n{entry or name} = {module}\n", encoding="utf-8")

    return write


def good(
    name: str, scheme: str, *, kind: str = "storage", factory: str = "builtins:repr", contract: str = "1.0"
) -> str:
    """The source of a plugin with one descriptor."""
    return GOOD.format(name=name, scheme=scheme, kind=kind, factory=factory, contract=contract)


def settings(tmp_path: Path, toml: str = "") -> Settings:
    """The configuration of a file."""
    file = tmp_path / "test.toml"
    file.write_text(toml, encoding="utf-8")
    return Settings.load({"config": str(file)})


def names(plugins: Plugins) -> list[str]:
    """The names of the usable plugins."""
    return [one.name for one in plugins.descriptors]


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise RuntimeError('no such driver')", "RuntimeError: no such driver"),
        ("import a_module_that_is_not_there", "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        (
            "from muniment.hookspecs import hookimpl\n@hookimpl\ndef muniment_plugins():\n    raise KeyError('x')",
            "KeyError: 'x'",
        ),
        (
            "from muniment.hookspecs import hookimpl\n@hookimpl\ndef muniment_plugins():\n    return ['x']",
            "muniment_plugins() gave a str, not a Descriptor",
        ),
        (
            "from muniment.hookspecs import hookimpl\n@hookimpl\ndef muniment_plugins(oops):\n    return []",
            "PluginValidationError: ",
        ),
        (good("broken", "acme", contract="2.0"), "upgrade muniment"),
        (good("broken", "acme", contract=f"{CONTRACT[0]}.{CONTRACT[1] + 1}"), "upgrade muniment"),
        (good("broken", "acme", contract="0.9"), "upgrade the plugin"),
        (good("broken", "acme", contract="one"), "which is no version"),
    ],
)
def test_a_broken_plugin_stops_nobody_else(install: Install, source: str, cause: str) -> None:
    """Whatever is wrong with one plugin, it is recorded with its cause, and the others are there."""
    install("aa-broken", source)
    install("zz-fine", good("fine", "fine"))

    plugins = Plugins.load()

    assert "fine" in names(plugins)
    (failure,) = plugins.failures
    assert failure.plugin == "aa-broken"
    assert failure.distribution == "aa-broken 1.2"
    assert cause in f"{failure.cause}; {failure.remedy}"
    assert "\n" not in failure.cause


def test_an_older_minor_runs(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin of an older minor of the same major is used."""
    monkeypatch.setattr("muniment.plugins.CONTRACT", (1, 3))
    install("older", good("older", "older", contract="1.2"))

    assert Plugins.load().storage("older:", settings(tmp_path)) is not None


@pytest.mark.parametrize(
    ("source", "cause"),
    [("raise RuntimeError('no such driver')", "no such driver"), (good("x", "acme", contract="2.0"), "contract 2.0")],
)
def test_the_configuration_names_a_broken_plugin(install: Install, tmp_path: Path, source: str, cause: str) -> None:
    """Named by its scheme, or by its table, a broken plugin stops the start with the original cause."""
    install("storage-acme", source)
    plugins = Plugins.load()

    with pytest.raises(PluginError, match=cause):
        plugins.storage("acme://host", settings(tmp_path))
    with pytest.raises(PluginError, match=cause):
        plugins.check(settings(tmp_path, "[plugins.storage-acme]\npool = 3\n"))
    assert plugins.storage("memory:", settings(tmp_path)) is not None


def test_an_unknown_scheme_tells_of_plugins_that_never_loaded(install: Install, tmp_path: Path) -> None:
    """A plugin that never loaded cannot say what it serves, so its cause is told with any scheme nobody serves."""
    install("surprise", "raise RuntimeError('no such driver')")

    with pytest.raises(PluginError, match=r"surprise \(RuntimeError: no such driver\)"):
        Plugins.load().storage("acme:", settings(tmp_path))


def test_one_remedy_is_said_once(install: Install, tmp_path: Path) -> None:
    """A plugin of another contract is refused with what helps, and a scheme that nobody serves with what there is."""
    install("storage-acme", good("storage-acme", "acme", contract="7.0"))
    plugins = Plugins.load()

    with pytest.raises(PluginError) as refused:
        plugins.storage("acme:x", settings(tmp_path))
    ours = "{}.{}".format(*CONTRACT)
    assert refused.value.message.endswith(f"this muniment has {ours}; upgrade muniment, or choose another.")

    with pytest.raises(PluginError) as unserved:
        plugins.embedder("zzzzzz:x", settings(tmp_path))
    assert unserved.value.message.count("hash") == 1


@pytest.mark.parametrize(
    "printing", ["print('noise')", "import os; os.write(1, b'noise')", "import os; os.system('echo noise')"]
)
def test_what_a_plugin_prints_is_no_output(install: Install, capfd: pytest.CaptureFixture[str], printing: str) -> None:
    """While plugins are found, standard output is standard error, for the plugin's children too; then it is back."""
    install("noisy", f"{printing}\n{good('noisy', 'noisy')}")

    assert "noisy" in names(Plugins.load())
    sys.stdout.write("ours\n")

    out, err = capfd.readouterr()
    assert out == "ours\n"
    assert "noise" in err


def test_two_plugins_with_one_scheme(install: Install, tmp_path: Path) -> None:
    """An error that names both, only where that scheme is asked for; of another kind it is no clash."""
    install("first", good("first", "same"))
    install("second", good("second", "same"))
    install("third", good("third", "same", kind="embedder"))
    plugins = Plugins.load()

    with pytest.raises(PluginError, match=r"first \(first 1\.2\) and second \(second 1\.2\) both serve"):
        plugins.storage("same:", settings(tmp_path))
    assert plugins.storage("memory:", settings(tmp_path)) is not None
    assert plugins.embedder("same:", settings(tmp_path)) is not None


def test_two_distributions_may_use_one_entry_point_name(install: Install) -> None:
    """Each is a plugin of its own, and neither hides the other."""
    install("first", good("first", "one"), entry="storage")
    install("second", good("second", "two"), entry="storage")

    assert {"first", "second"} <= set(names(Plugins.load()))


def no_entry_points(group: str) -> tuple[()]:
    """Nothing is installed."""
    return ()


def test_a_missing_scheme_names_what_there_is_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The refusal lists the installed schemes, and the distribution that usually serves the missing one."""
    monkeypatch.setattr("muniment.plugins.entry_points", no_entry_points)
    plugins = Plugins.load()

    with pytest.raises(PluginError, match="pip install muniment-storage-postgres"):
        plugins.storage("postgresql://host/db", settings(tmp_path))
    with pytest.raises(PluginError, match="pip install muniment-embed-local"):
        plugins.embedder("local:all-MiniLM-L6-v2", settings(tmp_path))
    with pytest.raises(PluginError, match="pip install muniment-transport-mcp"):
        plugins.transport("mcp", settings(tmp_path))


def test_a_scheme_that_nobody_serves_gets_the_nearest_one(tmp_path: Path) -> None:
    """A misspelt scheme is answered with the installed one that was meant."""
    with pytest.raises(PluginError, match=r"the installed ones are .*memory.*did you mean memory\?"):
        Plugins.load().storage("memroy:", settings(tmp_path))


def test_none_is_no_embedder(tmp_path: Path) -> None:
    """The embedder ``none`` is a valid choice that needs no plugin."""
    assert Plugins.load().embedder("none", settings(tmp_path)) is None


def test_a_table_for_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    """A misspelt plugin name in the configuration is refused, since its options would be ignored."""
    with pytest.raises(PluginError, match=r"did you mean reference\?"):
        Plugins.load().check(settings(tmp_path, "[plugins.referense]\n"))


def test_a_factory_gets_its_own_table(install: Install, tmp_path: Path) -> None:
    """Value, data directory and options reach the factory; it is imported only when it is asked for."""
    source = good("acme", "acme", factory="acme_factory:make")
    install("acme", source)
    install("acme-factory", "def make(context):\n    return context\n")
    (tmp_path / "acme_factory-1.2.dist-info" / "entry_points.txt").unlink()
    loaded = settings(tmp_path, 'data_dir = "/somewhere"\n[plugins.acme]\npool = 3\n')

    context = Plugins.load().storage("acme://host", loaded)

    assert (context.spec, str(context.data_dir), context.options) == ("acme://host", "/somewhere", {"pool": 3})  # pyright: ignore


@pytest.mark.parametrize(
    ("factory", "cause"),
    [
        ("not_there_at_all:make", "ModuleNotFoundError"),
        ("builtins:not_there", "AttributeError"),
        ("builtins", "AttributeError|ValueError"),
        ("muniment.limits:CONTENT_MAX", "not callable"),
        ("muniment.plugins:resolve", "TypeError"),
    ],
)
def test_a_factory_that_cannot_be_used(install: Install, tmp_path: Path, factory: str, cause: str) -> None:
    """A factory that is not there, or raises, is one refusal with the cause."""
    install("acme", good("acme", "acme", factory=factory))

    with pytest.raises(PluginError, match=cause):
        Plugins.load().storage("acme:", settings(tmp_path))


def test_a_refusal_of_a_factory_stays_what_it_is(install: Install, tmp_path: Path) -> None:
    """A factory's own ConfigurationError is not wrapped."""
    install(
        "acme",
        good("acme", "acme", factory="acme:make")
        + "def make(context):\n    from muniment.errors import ConfigurationError\n"
        "    raise ConfigurationError('pool must be a number')\n",
    )

    with pytest.raises(ConfigurationError, match=r"^pool must be a number$") as refusal:
        Plugins.load().storage("acme:", settings(tmp_path))
    assert not isinstance(refusal.value, PluginError)


OBSERVER = """
from muniment.hookspecs import Finding, hookimpl
seen = []

@hookimpl
def muniment_committed(receipt, audit):
    seen.append((receipt.id, audit.action))
    {raising}

@hookimpl
def muniment_doctor(context):
    {raising}
    return [Finding("observer", True, context.storage)]
"""


def receipt_and_audit() -> tuple[Receipt, AuditRecord]:
    """What a committed write tells observers."""
    now = datetime.now(UTC)
    audit = AuditRecord(
        id="a",
        at=now,
        actor="alice",
        agent=None,
        surface="test",
        action="memory.write",
        memory_id="m",
        project_id=None,
        version=1,
        changed=("content",),
        scope_key="u:alice",
    )
    return Receipt(id="m", version=1, updated_at=now, action="memory.write"), audit


def test_an_observer_that_raises(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    """Its exception is logged without its text, and the other observers are told all the same."""
    install("aa-loud", OBSERVER.format(raising="raise ValueError('the content of a memory')"))
    install("mm-calm", OBSERVER.format(raising="pass"))
    install("zz-loud", OBSERVER.format(raising="raise ValueError('the content of a memory')"))
    plugins = Plugins.load()

    with caplog.at_level(logging.WARNING):
        plugins.committed(*receipt_and_audit())

    import mm_calm  # pyright: ignore

    assert mm_calm.seen == [("m", "memory.write")]  # pyright: ignore
    assert "aa-loud" in caplog.text
    assert "ValueError" in caplog.text
    assert "the content of a memory" not in caplog.text


def test_a_doctor_hook_that_raises(install: Install) -> None:
    """It is a finding itself, beside those of the others."""
    install("aa-loud", OBSERVER.format(raising="raise ValueError('boom')"))
    install("mm-calm", OBSERVER.format(raising="pass"))

    findings = Plugins.load().doctor(DoctorContext(storage="embedded:", embedder="none", data_dir="/d"))

    assert next(one for one in findings if one.subject == "observer").detail == "embedded:"
    (loud,) = [one for one in findings if one.subject == "aa-loud"]
    assert not loud.ok
    assert "boom" in loud.detail


OPTIONS_SHOWN = """
from muniment.hookspecs import Finding, hookimpl

@hookimpl
def muniment_doctor(context):
    return [Finding(__name__, True, repr(dict(context.options)))]
"""


def test_a_doctor_hook_sees_its_own_options(install: Install) -> None:
    """Each plugin is told its own table of the configuration, and no other's, which may hold secrets."""
    install("aa-one", OPTIONS_SHOWN)
    install("bb-two", OPTIONS_SHOWN)
    tables = {"aa-one": {"pool": 3}, "cc-three": {"password": "x"}}

    findings = Plugins.load().doctor(DoctorContext(storage="embedded:", embedder="none", data_dir="/d"), tables)

    assert {one.subject: one.detail for one in findings if one.subject in ("aa_one", "bb_two")} == {
        "aa_one": "{'pool': 3}",
        "bb_two": "{}",
    }
