"""An application that behaves like OpenAI's embeddings API, and misbehaves as it is told; for the suite and the tests.

Its vectors come from words (``muniment.reference.HashEmbedder``): texts that share words are near. A byte counts as a
token, the most that a byte-level BPE tokeniser can make of it, so what passes here is not too long there.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from muniment.ports import Vector
from muniment.reference import HashEmbedder
from muniment.serving.asgi import Message, Receive, Scope, Send

KEY: Final = "key-of-loopback-5f1c0d9a7e"
"""The key that the application knows."""
MODEL: Final = "words-256"
PATH: Final = "/v1"
FAILING_PATH: Final = "/failing/v1"
"""Below this every request is answered with 503."""
SILENT_PATH: Final = "/silent/v1"
"""Below this no request is answered."""
TEXTS_MAX: Final = 2_048
TOKENS_MAX: Final = 8_192
REQUEST_TOKENS_MAX: Final = 300_000


@dataclass(frozen=True, slots=True)
class Model:
    """``shortens`` says whether it gives fewer ``dimensions`` where asked; these are not of unit length then."""

    dimensions: int
    shortens: bool = True


MODELS: Final[Mapping[str, Model]] = {MODEL: Model(256), "words-64-only": Model(64, shortens=False)}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        """The texts to embed."""
        given = self.body.get("input", [])
        return [given] if isinstance(given, str) else list(given)


class Refused(Exception):
    """An answer that is an error in OpenAI's shape."""

    def __init__(
        self,
        status: int,
        message: str = "It does not work now.",
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.payload = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Reply:
    """What can be sent for a request."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def json(self, payload: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """A whole answer."""
        await self.content(json.dumps(payload).encode(), status=status, headers=headers)

    async def content(
        self,
        content: bytes,
        *,
        status: int = 200,
        kind: str = "application/json",
        headers: Mapping[str, str] | None = None,
        length: int | None = None,
    ) -> None:
        """An answer of ``content``, which ends too early where another ``length`` is announced."""
        length = len(content) if length is None else length
        fields = {"content-type": kind, "content-length": str(length), **(headers or {})}
        pairs = [(name.encode(), value.encode()) for name, value in fields.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})
        await self._send({"type": "http.response.body", "body": content, "more_body": length != len(content)})

    async def drop(self) -> None:
        """One byte of white space now and then, of an answer without an end, until the client is gone."""
        pairs = [(b"content-type", b"application/json")]
        await self._send({"type": "http.response.start", "status": 200, "headers": pairs})
        left = asyncio.ensure_future(self.left())
        while not left.done():
            await self._send({"type": "http.response.body", "body": b" ", "more_body": True})
            await asyncio.wait([left], timeout=0.02)

    async def left(self) -> None:
        """Until the client is gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


Behaviour = Callable[[Asked, Reply], Awaitable[None]]
"""How a request is answered."""


class LoopbackApi:
    """The application. ``key`` is the one that it takes, None for any or none; ``asked`` are the requests so far."""

    def __init__(self, key: str | None = KEY) -> None:
        self.key = key
        self.asked: list[Asked] = []
        self._next: deque[Behaviour] = deque()
        self._always: Behaviour = self.behave

    def then(self, *behaviours: Behaviour) -> None:
        """Answer the next requests so, one each."""
        self._next.extend(behaviours)

    def always(self, behaviour: Behaviour | None) -> None:
        """Answer all that follow so; as the API does where it is None."""
        self._always = behaviour or self.behave

    def reset(self) -> None:
        """Behave, and forget what was asked."""
        self.asked.clear()
        self._next.clear()
        self.always(None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = b""
        message: Message = {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
        reply = Reply(receive, send)
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        path: str = scope["path"].removesuffix("/embeddings")
        try:
            if scope["method"] != "POST" or path == scope["path"]:
                raise Refused(404, f"Unknown request URL: {scope['path']}.")
            asked = Asked(headers, json.loads(body))
            self.asked.append(asked)
            await self._behaviour(path)(asked, reply)
        except Refused as refused:
            await reply.json(refused.payload, refused.status, refused.headers)

    def _behaviour(self, path: str) -> Behaviour:
        if path == FAILING_PATH:
            return refuses(503)
        if path == SILENT_PATH:
            return hangs
        if path != PATH:
            raise Refused(404, f"Unknown request URL: {path}.")
        return self._next.popleft() if self._next else self._always

    async def behave(self, asked: Asked, reply: Reply) -> None:
        """Answer as the API does."""
        await reply.json(self.answer(asked))

    def answer(self, asked: Asked) -> dict[str, Any]:
        """The API's answer. Raises Refused."""
        if self.key is not None and asked.headers.get("authorization") != f"Bearer {self.key}":
            raise Refused(401, "Incorrect API key provided.", code="invalid_api_key")
        name = asked.body.get("model")
        model = MODELS.get(str(name))
        if model is None:
            raise Refused(404, f"The model `{name}` does not exist.", code="model_not_found")
        used = _checked(asked.texts)
        dimensions = _dimensions(asked.body, model)
        as_text = asked.body.get("encoding_format", "float") == "base64"
        made = [_vector(text, model.dimensions)[:dimensions] for text in asked.texts]
        data = [
            {"object": "embedding", "index": place, "embedding": _packed(vector) if as_text else vector.tolist()}
            for place, vector in enumerate(made)
        ]
        return {"object": "list", "data": data, "model": name, "usage": {"prompt_tokens": used, "total_tokens": used}}


def refuses(status: int, message: str = "It does not work now.", **said: Any) -> Behaviour:
    """Answer with an error; ``said`` as for Refused."""

    async def behaviour(asked: Asked, reply: Reply) -> None:
        raise Refused(status, message, **said)

    return behaviour


def says(content: bytes, *, status: int = 200, kind: str = "application/json", length: int | None = None) -> Behaviour:
    """Answer with ``content``, of which ``length`` bytes are announced."""

    async def behaviour(asked: Asked, reply: Reply) -> None:
        await reply.content(content, status=status, kind=kind, length=length)

    return behaviour


def alters(api: LoopbackApi, change: Callable[[dict[str, Any]], object]) -> Behaviour:
    """Answer as the API does, in numbers, after ``change`` changed the answer in place."""

    async def behaviour(asked: Asked, reply: Reply) -> None:
        answer = api.answer(Asked(asked.headers, {**asked.body, "encoding_format": "float"}))
        change(answer)
        await reply.json(answer)

    return behaviour


async def hangs(asked: Asked, reply: Reply) -> None:
    """Answer nothing, for as long as the client waits."""
    await reply.left()


async def drips(asked: Asked, reply: Reply) -> None:
    """Answer without an end, for as long as the client waits."""
    await reply.drop()


def _checked(texts: Sequence[str]) -> int:
    """How many tokens the texts have. Raises Refused."""
    if not texts or len(texts) > TEXTS_MAX or not all(texts):
        raise Refused(400, "'$.input' is invalid.")
    tokens = [len(text.encode()) for text in texts]
    if max(tokens) > TOKENS_MAX:
        raise Refused(400, f"This model's maximum context length is {TOKENS_MAX} tokens.")
    if sum(tokens) > REQUEST_TOKENS_MAX:
        raise Refused(400, "Too many tokens for one request.", kind="max_tokens_per_request")
    return sum(tokens)


def _dimensions(body: Mapping[str, Any], model: Model) -> int:
    asked = body.get("dimensions")
    if asked is None:
        return model.dimensions
    if not model.shortens:
        raise Refused(400, "This model does not support specifying dimensions.")
    if not isinstance(asked, int) or not 1 <= asked <= model.dimensions:
        raise Refused(400, f"dimensions must be at most {model.dimensions}.", param="dimensions")
    return asked


@lru_cache(maxsize=4_096)
def _vector(text: str, dimensions: int) -> Vector:
    return HashEmbedder(dimensions).vector(text)


def _packed(vector: Vector) -> str:
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
