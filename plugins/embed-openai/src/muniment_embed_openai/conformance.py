"""How the conformance suite gets at this plugin: a server of its own on loopback, or the provider that is configured.

Without a URL everything is judged against ``loopback``, which answers, refuses and fails like a provider; that needs
uvicorn. With ``openai:MODEL`` it is the provider that OpenAI's environment variables are about.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muniment.conformance.target import EmbedderTarget, FailingEmbedder, FailureKind, NotRun
from muniment.ports import Embedder, PluginContext
from muniment_embed_openai import DESCRIPTOR
from muniment_embed_openai.embedder import SCHEME, OpenAIEmbedder, create
from muniment_embed_openai.options import KEY_VARIABLE, Options

if TYPE_CHECKING:
    from muniment_embed_openai.loopback import Loopback

NEVER_SEEN: Final = "no-such-model-31f0c5"
WRONG_KEY: Final = "no-such-key-31f0c5"
TIMEOUT: Final = 2.0
"""Seconds that an embedder which must fail waits for its provider."""


@dataclass(frozen=True)
class Provider:
    """A provider: ``environ`` has its key in ``OPENAI_API_KEY``; ``base_url`` None is what OpenAI's variables say."""

    model: str
    environ: Mapping[str, str] = field(repr=False)
    base_url: str | None = None

    def embedder(self, *, model: str | None = None, key: str | None = None, **options: Any) -> OpenAIEmbedder:
        """An embedder on it, with another model, key or options where they are given."""
        at = {} if self.base_url is None else {"base_url": self.base_url, "api_key_env": KEY_VARIABLE}
        environ = self.environ if key is None else {**self.environ, KEY_VARIABLE: key}
        return OpenAIEmbedder(model or self.model, Options.model_validate({**at, **options}), environ=environ)


class OpenAITarget(EmbedderTarget):
    """The embedder on ``provider``, which is ``real`` unless it is the suite's own."""

    name = DESCRIPTOR.name
    contract = DESCRIPTOR.contract
    capabilities = DESCRIPTOR.capabilities
    remote = True

    def __init__(self, provider: Provider, *, real: bool) -> None:
        self.real = real
        self.semantic = real
        self._provider = provider

    def describe(self) -> Mapping[str, str]:
        """The model that is judged, and at which provider."""
        at = "the provider of the environment" if self.real else "a server of the suite on loopback"
        return {"embedder": SCHEME + self._provider.model, "provider": at}

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Embedder]:
        """An open embedder of the judged model, closed afterwards."""
        embedder = self._provider.embedder()
        await embedder.open()
        try:
            yield embedder
        finally:
            await embedder.close()

    def fail(self) -> Sequence[FailingEmbedder]:
        """A model that was never seen, a key that nobody gave out, and a server that is not there."""
        provider = self._provider
        return [
            FailingEmbedder(
                FailureKind.UNKNOWN_MODEL, lambda: provider.embedder(model=NEVER_SEEN), names=NEVER_SEEN, within=30
            ),
            FailingEmbedder(FailureKind.BAD_KEY, lambda: provider.embedder(key=WRONG_KEY), within=30),
            _failing(FailureKind.UNREACHABLE, provider, f"http://127.0.0.1:{_closed_port()}/v1"),
        ]


class LoopbackTarget(OpenAITarget):
    """The embedder on a server of the suite, which can fail in more ways."""

    def __init__(self, server: Loopback) -> None:
        from muniment_embed_openai.loopback_api import KEY, MODEL

        self._server = server
        super().__init__(Provider(MODEL, {KEY_VARIABLE: KEY}, server.base_url), real=False)

    def fail(self) -> Sequence[FailingEmbedder]:
        """Also a server that never answers, and one whose every answer is a failure."""
        from muniment_embed_openai.loopback_api import FAILING_PATH, SILENT_PATH

        return [
            *super().fail(),
            _failing(FailureKind.UNREACHABLE, self._provider, self._server.origin + SILENT_PATH),
            _failing(FailureKind.FAILING, self._provider, self._server.origin + FAILING_PATH),
        ]


def target(url: str | None = None) -> EmbedderTarget:
    """The target for ``url``, ``openai:MODEL``; without one, on a server of the suite. Raises NotRun without uvicorn,
    and ConfigurationError."""
    if url is not None:
        create(PluginContext(url, data_dir=Path(tempfile.gettempdir())))
        return OpenAITarget(Provider(url.removeprefix(SCHEME), os.environ), real=True)
    if find_spec("uvicorn") is None:
        raise NotRun(
            'The server of the suite needs uvicorn; pip install "muniment-embed-openai[conformance]", or name a '
            "provider's model with --url openai:MODEL."
        )
    return LoopbackTarget(_served())


@cache
def _served() -> Loopback:
    """The server, one for the process and until its end."""
    from muniment_embed_openai.loopback import Loopback

    server = Loopback()
    server.start()
    return server


def _failing(kind: FailureKind, provider: Provider, base_url: str) -> FailingEmbedder:
    options: dict[str, Any] = {"base_url": base_url, "api_key_env": KEY_VARIABLE, "timeout": TIMEOUT, "max_retries": 1}
    return FailingEmbedder(kind, lambda: provider.embedder(**options), within=TIMEOUT)


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
