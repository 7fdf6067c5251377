"""The embedder ``openai:MODEL``: its space, its batches, and how many requests there are at a time.

What one request does is ``provider``'s, which server is asked with which key is ``options``'s.

Tokens are not counted but bounded, as the vocabularies of OpenAI's models are to be had from a host of theirs alone: a
byte-level BPE tokeniser makes each token of one byte or more, so a text has at most as many tokens as UTF-8 bytes.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from muniment import plugin_options
from muniment.errors import ConfigurationError, EmbedderUnavailable, InvalidInput, MunimentError
from muniment.inputs import storable
from muniment.ports import PluginContext, Space, Vector, Vectors
from muniment_embed_openai import DESCRIPTOR
from muniment_embed_openai.options import Access, Options, access

if TYPE_CHECKING:
    from muniment_embed_openai.provider import Provider

SCHEME: Final = "openai:"
DIMENSIONS: Final = range(8, 4_097)
QUERIES_AT_ONCE: Final = 32
QUERY_RETRIES: Final = 1
"""A search goes on without meaning sooner than it waits for more attempts."""
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
_UNREAD: Final = 1e-6
"""Two vectors this near everywhere are one; texts that differ in a word that was read are further apart."""


def create(context: PluginContext) -> OpenAIEmbedder:
    """The embedder of a configured ``openai:MODEL``. Raises ConfigurationError."""
    model = context.spec.partition(":")[2]
    if not _MODEL.fullmatch(model):
        raise ConfigurationError(
            f"embedder {context.spec}: this names no model; write openai:MODEL, such as openai:text-embedding-3-small."
        )
    return OpenAIEmbedder(model, plugin_options.parse(Options, DESCRIPTOR.name, context.options))


class OpenAIEmbedder:
    """``muniment.ports.Embedder`` on a server with OpenAI's API. ``environ`` holds the key, and OpenAI's variables."""

    def __init__(self, model: str, options: Options | None = None, *, environ: Mapping[str, str] = os.environ) -> None:
        self._model = model
        self._options = options or Options()
        self._environ = environ
        self._access: Access | None = None
        self._provider: Provider | None = None
        self._space: Space | None = None
        self._entering = asyncio.Lock()
        self._failure: tuple[float, MunimentError] | None = None
        self._batches = asyncio.Semaphore(self._options.concurrency)
        self._queries = asyncio.Semaphore(QUERIES_AT_ONCE)

    @property
    def name(self) -> str:
        """What the configuration calls it."""
        return SCHEME + self._model

    @property
    def ready(self) -> bool:
        """Whether the client is loaded; whether its server answers is known only when it is asked."""
        return self._provider is not None

    async def open(self) -> None:
        """Find the key. Asks nobody, so that a start does not need the provider. Raises ConfigurationError."""
        self._access = access(self.name, self._options, self._environ)

    async def close(self) -> None:
        """Close the connections; what still waits for an answer is refused. Safe to call twice."""
        provider, self._access, self._provider, self._space = self._provider, None, None, None
        if provider is not None:
            await provider.close()

    async def space(self) -> Space:
        """The space, its dimensions learnt from a first answer. Raises EmbedderUnavailable, ConfigurationError."""
        asked = time.monotonic()
        async with self._entering:
            if self._space is None:
                if self._failure is not None and asked <= self._failure[0]:
                    raise self._failure[1]  # whoever waited for it asks no server again
                try:
                    self._space = await self._learnt()
                except MunimentError as error:
                    self._failure = time.monotonic(), error
                    raise
            return self._space

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The UTF-8 bytes of each text, which its tokens never exceed; no network is needed. Raises InvalidInput."""
        return [len(_encoded(text)) for text in texts]

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One unit vector a text, ``(len(texts), dimensions)``, by one request or several at a time.

        Raises EmbedderUnavailable, ConfigurationError, and InvalidInput for a text that is empty, no Unicode, or
        refused by the server. Where one request fails, the others are taken back.
        """
        sizes = [_size(text) for text in texts]
        space = await self.space()
        if not texts:
            return np.empty((0, space.dimensions), dtype=np.float32)
        return await self._in_batches(texts, sizes)

    async def embed_query(self, text: str) -> Vector:
        """The same as for a passage, before any passages that wait. Raises as ``embed_passages``."""
        _size(text)
        await self.space()
        provider = await self._connected()
        async with self._queries:
            vectors = await provider.vectors([text], retries=min(QUERY_RETRIES, self._options.max_retries))
        return self._joined([vectors], provider)[0]

    async def _in_batches(self, texts: Sequence[str], sizes: Sequence[int]) -> Vectors:
        options, provider = self._options, await self._connected()

        async def send(part: Sequence[str]) -> Vectors:
            async with self._batches:
                return await provider.vectors(part, retries=options.max_retries)

        try:
            async with asyncio.TaskGroup() as group:
                runs = batches(sizes, options.batch_texts, options.batch_bytes)
                tasks = [group.create_task(send(texts[start:end])) for start, end in runs]
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
        else:
            return self._joined([task.result() for task in tasks], provider)
        raise first

    def _joined(self, made: Sequence[Vectors], provider: Provider) -> Vectors:
        """The answers' vectors as one, of the space's dimensions once these are known. Raises EmbedderUnavailable."""
        dimensions: set[int] = {vectors.shape[1] for vectors in made}
        if self._space is not None:
            dimensions.add(self._space.dimensions)
        if len(dimensions) > 1:
            numbers = " and ".join(map(str, sorted(dimensions)))
            raise provider.refusals.bad_answer(f"gave vectors of {numbers} dimensions, which are of different models")
        return np.concatenate(made)

    async def _learnt(self) -> Space:
        """The space, once the model has shown its dimensions, and that it reads a passage of full size to its end."""
        options, provider = self._options, await self._connected()
        whole, changed = await self._of_full_size(provider)
        dimensions = len(whole)
        if dimensions not in DIMENSIONS or options.dimensions not in (None, dimensions):
            raise provider.refusals.wrong_dimensions(options.dimensions, dimensions)
        if np.allclose(whole, changed, rtol=0, atol=_UNREAD):
            raise provider.refusals.too_short()
        model = options.model_name or self._model
        return Space(
            id=f"openai:{model}:{dimensions}:own:unit:{options.passage_bytes}",
            provider="openai",
            model=model,
            dimensions=dimensions,
            pooling="own",
            normalised=True,
            passage_tokens=options.passage_bytes,
        )

    async def _of_full_size(self, provider: Provider) -> Vectors:
        """The vectors of two texts as long as a passage may be, which differ in their ends."""
        size = self._options.passage_bytes
        full = _dense(size)
        try:
            return await self._in_batches([full, f"{full[:-5]}zebra"], [size, size])
        except InvalidInput as error:
            refused = error.message
        raise provider.refusals.too_short(refused)

    async def _connected(self) -> Provider:
        there = self._opened()
        if self._provider is None:
            try:
                made = await asyncio.to_thread(_provider, self._model, self._options, there)
            except Exception as error:
                cause = type(error).__name__  # alone: what the error says may have a proxy's password
            else:
                self._opened()
                self._provider = self._provider or made
                return self._provider
            raise ConfigurationError(
                f"embedder {self.name}: its client cannot be made ({cause}); check base_url, the variables for proxies "
                "(HTTP_PROXY, HTTPS_PROXY, ALL_PROXY; SOCKS is not supported), SSL_CERT_FILE and SSLKEYLOGFILE."
            )
        return self._provider

    def _opened(self) -> Access:
        if self._access is None:
            raise EmbedderUnavailable(f"The embedder {self.name} is closed; open it again before it is used.")
        return self._access


def _provider(model: str, options: Options, there: Access) -> Provider:
    """The client, whose package takes a second or more to import."""
    module = importlib.import_module("muniment_embed_openai.provider")
    return module.Provider(model, options, there)


def batches(sizes: Sequence[int], texts: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut a row of texts into runs ``(start, end)`` of at most so many ``texts`` and so much in all, one at least."""
    start, total = 0, 0
    for place, each in enumerate(sizes):
        if place > start and (place - start >= texts or total + each > size):
            yield start, place
            start, total = place, 0
        total += each
    if start < len(sizes):
        yield start, len(sizes)


def _dense(size: int) -> str:
    """A text of ``size`` bytes of which tokenisers make a token each: digits and punctuation never join."""
    return "".join(f"{place % 10}{',;:!?'[place // 10 % 5]}" for place in range(size // 2)) + "." * (size % 2)


def _encoded(text: str) -> bytes:
    try:
        return storable(text).encode()
    except ValueError as error:
        raise InvalidInput("text", str(error)) from None


def _size(text: str) -> int:
    size = len(_encoded(text))
    if not size:
        raise InvalidInput("text", "it is empty, and an empty text has no meaning; send some text")
    return size
