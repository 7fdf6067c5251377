"""One request to the provider through the official client, with its attempts, and what comes of it.

Owns the client and the time of a call. Importing this takes a second or two, since the client's package is large: it is
imported in a thread, at the first use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Literal

import httpx2
from openai import APIConnectionError, APIStatusError, APITimeoutError, AsyncOpenAI, Omit, omit

from muniment.errors import MunimentError
from muniment.ports import Vectors
from muniment_embed_openai.answers import BadAnswer, vectors_in
from muniment_embed_openai.options import Access, Options
from muniment_embed_openai.refusals import Refusals
from muniment_embed_openai.retries import CALL, Call, judge
from muniment_embed_openai.said import said_in

CONNECT_SECONDS: Final = 5.0
CONNECTIONS_MAX: Final = 100
_NO_KEY: Final = "none"


class Provider:
    """The model ``model`` at the server of ``access``."""

    def __init__(self, model: str, options: Options, access: Access) -> None:
        self._model = model
        self._options = options
        self._refusals = Refusals(model, options, access)
        self._encoding: Literal["base64", "float"] = "base64"
        self._client = _client(options, access)
        self._headers = _headers(options, access)

    @property
    def refusals(self) -> Refusals:
        """What failures of this provider become."""
        return self._refusals

    async def vectors(self, texts: Sequence[str], *, retries: int) -> Vectors:
        """One unit vector a text, ``(len(texts), dimensions)``, from one request of at most ``1 + retries`` attempts.

        Raises EmbedderUnavailable, ConfigurationError, InvalidInput.
        """
        call = Call(asyncio.get_running_loop().time() + self._options.timeout)
        CALL.set(call)
        # Refusals are raised outside of the handlers: what an exception was raised in is kept with it, and the
        # client's exceptions hold the key.
        try:
            async with asyncio.timeout_at(call.ends):
                return vectors_in(await self._answer(texts, retries), len(texts))
        except (TimeoutError, APITimeoutError):
            refusal = self._refusals.timed_out(call.status)
        except APIConnectionError:
            refusal = self._refusals.unreachable()
        except APIStatusError as error:
            refusal = self._refusals.refused(error.response, texts)
        except BadAnswer as error:
            refusal = self._refusals.bad_answer(str(error))
        except MunimentError:
            raise
        except Exception as error:  # whatever the client raises for an answer that it cannot read
            refusal = self._refusals.bad_answer(f"gave an answer that cannot be read ({type(error).__name__})")
        raise refusal

    async def close(self) -> None:
        """Close the connections; what is asked meanwhile fails."""
        await self._client.close()

    async def _answer(self, texts: Sequence[str], retries: int) -> Any:
        encoding = self._encoding
        try:
            return await self._ask(texts, retries, encoding)
        except APIStatusError as error:
            # The client asks for base64 by default; servers that know only numbers mostly ignore it, some refuse.
            if encoding == "float" or not _is_about_encoding(error.response):
                raise
        self._encoding = "float"
        return await self._ask(texts, retries, "float")

    async def _ask(self, texts: Sequence[str], retries: int, encoding: Literal["base64", "float"]) -> Any:
        dimensions = self._options.dimensions
        return await self._client.with_options(max_retries=retries).embeddings.create(
            input=list(texts),
            model=self._model,
            dimensions=omit if dimensions is None else dimensions,
            encoding_format=encoding,
            extra_headers=self._headers,
        )


def _client(options: Options, access: Access) -> AsyncOpenAI:
    """The client. A redirect is not followed: it could take the texts to somebody else."""
    timeout = httpx2.Timeout(options.timeout, connect=min(CONNECT_SECONDS, options.timeout))
    return AsyncOpenAI(
        api_key=access.key or _NO_KEY,
        base_url=access.base_url,
        organization=options.organization,
        project=options.project,
        timeout=timeout,
        http_client=httpx2.AsyncClient(
            timeout=timeout,
            follow_redirects=False,
            # Vectors hardly get smaller, and a small answer could unpack to a large one.
            headers={"Accept-Encoding": "identity"},
            limits=httpx2.Limits(max_connections=CONNECTIONS_MAX),
            event_hooks={"response": [judge]},
        ),
    )


def _headers(options: Options, access: Access) -> dict[str, str | Omit]:
    """Those that the client must not send by itself: it takes two of them from variables that are about OpenAI."""
    headers: dict[str, str | Omit] = {} if access.key else {"Authorization": omit}
    if not access.own:
        headers["OpenAI-Organization"] = options.organization or omit
        headers["OpenAI-Project"] = options.project or omit
    return headers


def _is_about_encoding(response: httpx2.Response) -> bool:
    said = said_in(response)
    words = f"{said.param} {said.message}".lower()
    return response.status_code in (400, 422) and ("encoding_format" in words or "base64" in words)
