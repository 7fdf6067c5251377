"""What can be configured, what is refused, and that a key is never shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muniment.errors import ConfigurationError
from muniment.plugins import Plugins
from muniment.ports import Embedder, PluginContext
from muniment_embed_openai.embedder import OpenAIEmbedder, create
from muniment_embed_openai.options import Options, access

WHOLE_NUMBERS = ("dimensions", "max_retries", "concurrency", "passage_bytes", "batch_texts", "batch_bytes")
PLUGIN = Path(__file__).parent.parent
KEY = "0f1c0d9a7eb24c5d9a7eb24c5d9a7eb2"
ENTRY_POINT = """
import sys, muniment_embed_openai as plugin
plugin.muniment_plugins()
import muniment_embed_openai.embedder
sys.exit(f"imported {[name for name in ('openai', 'httpx2', 'uvicorn') if name in sys.modules]}"
         if {"openai", "httpx2", "uvicorn"} & set(sys.modules) else 0)
"""


def made(spec: str = "openai:text-embedding-3-small", **options: Any) -> OpenAIEmbedder:
    """What the factory gives."""
    return create(PluginContext(spec=spec, data_dir=Path(), options=options))


def test_the_entry_point_and_the_factory_import_no_client() -> None:
    """The client's package takes more than a second; a start waits for it no more than for a model."""
    subprocess.run([sys.executable, "-c", ENTRY_POINT], check=True, timeout=60)


def test_it_is_found_by_its_scheme() -> None:
    """``openai:`` in a configuration is this plugin."""
    assert Plugins.load().find("embedder", "openai").name == "embed-openai"
    assert isinstance(made(), Embedder)


@pytest.mark.parametrize(
    "spec", ["openai:text-embedding-3-large", "openai:nomic-embed-text:v1.5", "openai:BAAI/bge-m3"]
)
def test_a_model_is_called_as_its_server_calls_it(spec: str) -> None:
    """Names of other servers have colons, slashes and at signs."""
    assert made(spec).name == spec


@pytest.mark.parametrize("spec", ["openai:", "openai: small", "openai:a b", "openai:/models/x", "openai:" + "x" * 201])
def test_what_is_no_model_s_name_is_refused(spec: str) -> None:
    """EMB-07: and nothing is used in its place."""
    with pytest.raises(ConfigurationError, match="names no model; write openai:MODEL"):
        made(spec)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base_url", "ftp://acme.example/v1"),
        ("base_url", "acme.example/v1"),
        ("base_url", f"https://alice:{KEY}@acme.example/v1"),
        ("base_url", f"https://acme.example/v1?key={KEY}"),
        ("base_url", "https://acme.example/v1#top"),
        ("base_url", "http://localhost:port/v1"),
        ("base_url", "http://localhost:99999/v1"),
        ("base_url", "http://[::1/v1"),
        ("base_url", "http://\N{SNOWMAN}/v1"),
        ("base_url", "http://local\0host/v1"),
        ("api_key_env", KEY),
        ("api_key_env", f"sk-{KEY}"),
        ("api_key", KEY),
        ("organization", f"acme\r\nX-Key: {KEY}"),
        ("dimensions", 7),
        ("dimensions", 4_097),
        ("timeout", 0),
        ("timeout", float("inf")),
        ("max_retries", 11),
        ("concurrency", 0),
        ("passage_bytes", 8_192),
        ("batch_texts", 2_049),
        ("batch_bytes", 300_001),
        ("model_name", "a b"),
        ("model_name", ""),
        ("timeout", True),
        *((name, value) for name in WHOLE_NUMBERS for value in (True, "8192", 8192.0)),
    ],
)
def test_wrong_options_are_refused(name: str, value: Any) -> None:
    """By their name and place, and without their value, which is a key where somebody wrote it into the wrong place."""
    with pytest.raises(ConfigurationError, match=rf"^{name}, set in \[plugins.embed-openai\]") as refused:
        made(**{name: value})
    assert KEY not in f"{refused.value.body()}{refused.value.__cause__!r}"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("api_key_env", f"sk-{KEY}", "must be the name of an environment variable, in capitals .*, not the key itself"),
        ("api_key_env", "", "must be the name of an environment variable"),
        ("model_name", "", "must be a name of 1 to 200 letters, digits"),
        ("organization", "a b", "must be 1 to 200 characters"),
        ("project", "", "must be 1 to 200 characters"),
        ("max_retries", True, "valid integer"),
        ("timeout", True, "valid number"),
    ],
)
def test_a_wrong_option_is_told_in_words(name: str, value: Any, says: str) -> None:
    """What it must be, not a pattern."""
    with pytest.raises(ConfigurationError, match=says) as refused:
        made(**{name: value})
    assert KEY not in str(refused.value.body())
    assert "pattern" not in refused.value.message


def test_every_option_and_every_reason_is_documented() -> None:
    """The README's tables have each option, and each reason that a refusal of the source gives, and no other."""
    readme = (PLUGIN / "README.md").read_text(encoding="utf-8")
    options = readme.partition("| option |")[2].partition("\n\n")[0]
    reasons = readme.partition("| `reason` |")[2].partition("\n\n")[0]
    source = "".join(file.read_text(encoding="utf-8") for file in (PLUGIN / "src").glob("*/*.py"))
    given = re.findall(r'(?:_wrong|unavailable)\(\s*"(\w+)"|reason="(\w+)"', source)

    assert {
        name for row in re.findall(r"^\| (.+?) \|", options, re.MULTILINE) for name in named(row)
    } == Options.names()
    assert {name for row in re.findall(r"^\| (.+?) \|", reasons, re.MULTILINE) for name in named(row)} == {
        one or other for one, other in given
    }


def named(cell: str) -> list[str]:
    """The names in a cell of a table."""
    return re.findall(r"`(\w+)`", cell)


def test_openai_s_own_variables_belong_together() -> None:
    """Its key goes to its server, or to the one that its own variable names."""
    environ = {"OPENAI_API_KEY": KEY}
    assert access("openai:x", Options(), environ).base_url == "https://api.openai.com/v1"
    there = access("openai:x", Options(), {**environ, "OPENAI_BASE_URL": "https://proxy.example/v1"})
    assert (there.base_url, there.key, there.own) == ("https://proxy.example/v1", KEY, True)
    assert access("openai:x", Options(api_key_env="ACME"), {**environ, "ACME": "other"}).key == "other"


def test_another_server_gets_only_the_key_that_is_named_for_it() -> None:
    """``base_url`` without ``api_key_env`` is a server that wants no key, and OpenAI's is not sent there."""
    environ = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://proxy.example/v1", "ACME": " other\n"}
    elsewhere = Options(base_url="http://localhost:8080/v1")
    there = access("openai:x", elsewhere, environ)
    assert (there.base_url, there.key, there.own) == ("http://localhost:8080/v1", None, False)
    named = access("openai:x", elsewhere.model_copy(update={"api_key_env": "ACME"}), environ)
    assert (named.key, named.key_variable) == ("other", "ACME")
    assert "other" not in repr(named)


@pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": ""}, {"OPENAI_API_KEY": " \n"}])
async def test_a_key_that_is_not_there_is_missed_at_the_start(environ: dict[str, str]) -> None:
    """The refusal names the variable, and what a server that wants no key needs."""
    with pytest.raises(ConfigurationError, match=r"OPENAI_API_KEY holds no API key.*wants no key") as refused:
        await OpenAIEmbedder("text-embedding-3-small", environ=environ).open()
    assert refused.value.details["reason"] == "no_key"


@pytest.mark.parametrize("key", [f"{KEY} {KEY}", f"{KEY}\nX-Other: 1", f"{KEY}é"])
async def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    """The HTTP library's own error would show it."""
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY") as refused:
        await OpenAIEmbedder("text-embedding-3-small", environ={"OPENAI_API_KEY": key}).open()
    assert KEY not in f"{refused.value.body()}{refused.value.__cause__!r}{refused.value.__context__!r}"


async def test_a_server_in_a_variable_is_checked_too() -> None:
    """What OPENAI_BASE_URL says is refused as the option would be."""
    environ = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"https://alice:{KEY}@acme.example"}
    with pytest.raises(ConfigurationError, match="OPENAI_BASE_URL must begin with") as refused:
        await OpenAIEmbedder("text-embedding-3-small", environ=environ).open()
    assert KEY not in refused.value.message
