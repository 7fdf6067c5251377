"""What ``muniment doctor`` finds: the client, the key, and whether the provider gives vectors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muniment.hookspecs import DoctorContext
from muniment_embed_openai import muniment_doctor
from muniment_embed_openai.loopback import Loopback
from muniment_embed_openai.loopback_api import KEY, LoopbackApi, refuses


async def found(server: Loopback, embedder: str = "openai:words-256", **options: Any) -> list[tuple[bool, str]]:
    """The findings, by a thread of their own as the command has it."""
    table = {"base_url": server.base_url, "api_key_env": "ACME_KEY", "max_retries": 0, **options}
    context = DoctorContext("memory:", embedder, "", options=table)
    findings = await asyncio.to_thread(muniment_doctor, context)
    assert KEY not in repr(findings)
    return [(finding.ok, finding.detail) for finding in findings]


async def test_a_provider_that_works(api: LoopbackApi, server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's version, and the space that the model gives."""
    monkeypatch.setenv("ACME_KEY", KEY)
    (client, vectors) = await found(server)
    assert client[0]
    assert vectors[0]
    assert vectors[1].startswith("openai:words-256:256:own:unit:2000, 256 dimensions")


@pytest.mark.parametrize(("key", "says"), [(None, "holds no API key"), ("wrong", "refused the API key in ACME_KEY")])
async def test_a_key_that_is_wrong(
    key: str | None, says: str, api: LoopbackApi, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said which variable is to be corrected."""
    if key:
        monkeypatch.setenv("ACME_KEY", key)
    ok, detail = (await found(server))[-1]
    assert not ok
    assert says in detail


async def test_a_provider_that_fails(api: LoopbackApi, server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its refusal is the finding; so is a wrong option, and an unknown model."""
    monkeypatch.setenv("ACME_KEY", KEY)
    api.then(refuses(429, code="insufficient_quota"))
    for says, embedder, options in (
        ("quota is used up", "openai:words-256", {}),
        ("no model 'never-seen'", "openai:never-seen", {}),
        ("timeout, set in [plugins.embed-openai]", "openai:words-256", {"timeout": 0}),
    ):
        ok, detail = (await found(server, embedder, **options))[-1]
        assert not ok
        assert says in detail


async def test_another_plugin_s_embedder_is_left_alone(server: Loopback) -> None:
    """Nothing is found, and nobody asked."""
    assert await found(server, "local:all-MiniLM-L6-v2") == []
