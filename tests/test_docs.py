"""The reference pages against the code: every error, every hook, every tool."""

from __future__ import annotations

import inspect
import json
import os
import re
from dataclasses import fields
from datetime import datetime
from pathlib import Path

import pytest

from muniment import digests, errors, hookspecs, limits, sections
from muniment.agent_models import AckOutcome, Exchange, ExchangeKind, SectionName
from muniment.authentication.settings import AuthSettings, IssuerSettings
from muniment.config import Settings
from muniment.hookspecs import Descriptor
from muniment.operations import OPERATIONS
from muniment.operations.agents import AGENT_OPERATIONS
from muniment.serving.settings import LimitSettings

DOCS = Path(__file__).parent.parent / "docs"


def page(name: str) -> str:
    """The text of a page."""
    return (DOCS / name).read_text(encoding="utf-8")


def codes() -> dict[str, str]:
    """Each code with the name of its class, that of the base class left out."""
    classes = [one for one in vars(errors).values() if inspect.isclass(one)]
    refusals = [one for one in classes if issubclass(one, errors.MunimentError) and one is not errors.MunimentError]
    return {one.code: one.__name__ for one in refusals}


def test_every_error_is_documented() -> None:
    """The table has each code once, with its class, its status over HTTP, when it is given and what to do."""
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \| (.+?) \| (.+?) \|$", page("errors.md"), re.MULTILINE)

    assert {code: name for code, name, *_ in rows} == codes()
    assert {name: int(status) for _, name, status, *_ in rows} == {
        name: vars(errors)[name].http_status for name in codes().values()
    }
    assert len(rows) == len(codes())


def test_every_error_named_elsewhere_is_real() -> None:
    """A code in the README or the quick start is one that there is."""
    for text in (page("quickstart.md"), (DOCS.parent / "README.md").read_text(encoding="utf-8")):
        named = set(re.findall(r"`((?:unknown|version|patch|not|access|content|invalid)_[a-z_]+)`", text))
        assert named <= codes().keys() | {"version"}


def test_every_hook_is_documented() -> None:
    """The page has each hook with its arguments, and no other."""
    hooks = {
        name: ", ".join(inspect.signature(function).parameters)
        for name, function in vars(hookspecs).items()
        if hasattr(function, f"{hookspecs.GROUP}_spec")
    }

    assert dict(re.findall(r"^## `(muniment_\w+)\((.*)\)`$", page("hooks.md"), re.MULTILINE)) == hooks


def test_every_field_of_a_descriptor_is_documented() -> None:
    """The table of the descriptor's fields is complete."""
    rows = re.findall(r"^\| `(\w+)` \|", page("hooks.md"), re.MULTILINE)

    assert set(rows) == {field.name for field in fields(Descriptor)}


def test_the_example_of_a_descriptor_works() -> None:
    """The example can be copied as it is."""
    (example,) = re.findall(r"```python\n(.+?)```", page("hooks.md"), re.DOTALL)
    module: dict[str, object] = {}
    exec(compile(example, "hooks.md", "exec", dont_inherit=True), module)

    (descriptor,) = module["muniment_plugins"]()  # pyright: ignore
    assert isinstance(descriptor, Descriptor)


def test_every_operation_is_in_the_quick_start() -> None:
    """The tables of tools have each operation, by its tool's name."""
    rows = [line for line in page("quickstart.md").splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`(\w+)`", "".join(row.split(" | ")[0] for row in rows)))

    assert named == {name.replace(".", "_") for name in OPERATIONS}


def test_every_setting_of_authentication_is_documented() -> None:
    """The tables have each key with what it is unless it is set, and no other; what is required has no default."""
    for model, kind in ((AuthSettings, "`[auth]`"), (IssuerSettings, "`[auth.issuers.NAME]`")):
        table = page("authentication.md").partition(f"| key of {kind} |")[2].partition("\n\n")[0]
        rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\| ", table, re.MULTILINE))
        assert set(rows) == set(model.model_fields)
        required = {name for name, field in model.model_fields.items() if field.is_required()}
        assert {name for name, default in rows.items() if not default} == required


def test_every_limit_is_documented() -> None:
    """The table of ``[limits]`` has each key, with what it is unless it is set, and no other."""
    table = page("deploy.md").partition("| key of `[limits]` |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \| ", table, re.MULTILINE))

    assert set(rows) == set(LimitSettings.model_fields)
    assert rows["body_bytes"] == f"{limits.BODY_MAX:,}"


def test_operations_named_on_agent_memory_are_real() -> None:
    """The page names operations that there are, among them every one on agents and events."""
    kinds = "|".join(sorted({name.partition(".")[0] for name in OPERATIONS}))
    named = set(re.findall(rf"`((?:{kinds})\.\w+)`", page("agent-memory.md")))

    assert named == {operation.name for operation in AGENT_OPERATIONS}


def test_sections_on_agent_memory_are_real() -> None:
    """The table of sections has each of them once, and says which an agent can write and what is in it."""
    below = page("agent-memory.md").partition("\n## The sections\n")[2]
    rows = re.findall(r"^\| (`.+?) \| (.+?) \| (.+?) \|$", below, re.MULTILINE)
    described = [(name, value, by) for names, value, by in rows for name in re.findall(r"`(\w+)`", names)]

    assert [name for name, _, _ in described] == [
        *(name for group in ("text", "object") for name in sections_of(group)),
        *sections.KEYS,
        *("cycles", "system_exchanges"),
    ]
    for name, value, by in described:
        assert ("platform" in by) == (name == "system_exchanges")
        if key := sections.KEYS.get(SectionName(name)):
            assert f"`{key}`" in value


def sections_of(kind: str) -> list[str]:
    """The sections that hold a text or an object, in the registry's order."""
    return [name.value for name in SectionName if name in (sections.TEXTS if kind == "text" else sections.OBJECTS)]


def test_numbers_and_names_on_agent_memory_are_the_code_s() -> None:
    """Keys of a payload, kinds, outcomes, the fields of an entry and every limit are what the code has."""
    text = page("agent-memory.md")
    entry = json.loads(re.findall(r"```json\n(.+?)```", text, re.DOTALL)[0])
    shown = digests.entry_json(
        Exchange(
            revision=1,
            ts=datetime.fromisoformat(entry["ts"]),
            kind=entry["kind"],
            surface_pod_id=entry["surfacePodId"],
            surface_label=entry["surfaceLabel"],
            peers=tuple(entry["peers"]),
            takeaway=entry["takeaway"],
        )
    )

    assert entry == shown
    assert set(re.findall(r"^\| `(memory\w+)` \|", text, re.MULTILINE)) == set(digests.RESERVED)
    assert set(re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", text.partition("`outcome`")[2], re.MULTILINE)) >= set(
        AckOutcome
    )
    for kind in ExchangeKind:
        assert (f"`{kind}`" in text) == digests.kind_is_recorded(kind)
    for said in (
        f"{limits.DIGEST_BYTES_MAX:,} bytes",
        f"cap of {limits.EXCHANGES_KEPT}",
        f"at most {limits.EXCHANGES_KEPT} entries",
        f"{limits.ATTEMPTS_MAX} times in all",
        f"at most {limits.CYCLES_KEPT} lines of {limits.CYCLE_MAX} characters",
        f"{limits.LEASE_SECONDS_DEFAULT} seconds, at most {limits.LEASE_SECONDS_MAX:,}",
        f"at most {limits.CLAIM_MAX} events",
        f"{limits.EVENT_PAYLOAD_BYTES_MAX:,} bytes",
        f"{limits.SECTION_BYTES_MAX:,} bytes",
        f"{limits.SECTION_BYTES_WARNED:,}",
        f"{limits.PODS_MAX} pods",
        f"{limits.TAKEAWAY_MAX} characters",
    ):
        assert said in text, said


def test_the_example_configurations_on_agent_memory_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each example of a configuration can be read as it is."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("MUNIMENT_")]:
        monkeypatch.delenv(name)
    examples = re.findall(r"```toml\n(.+?)```", page("agent-memory.md"), re.DOTALL)

    assert len(examples) == 2
    for example in examples:
        (tmp_path / "muniment.toml").write_text(example, encoding="utf-8")
        settings = Settings.load()
        assert settings.platform == (settings.agent is None)
