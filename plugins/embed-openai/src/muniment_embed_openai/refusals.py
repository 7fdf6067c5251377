"""What each failure of a provider becomes: one refusal of ours, which names the cause and the remedy.

What waiting may cure is EmbedderUnavailable, what somebody must configure is ConfigurationError, and a text that is not
taken is InvalidInput, so that it holds up no other. ``details`` hold a ``reason`` for programs. The client's exceptions
hold the key and the texts, so none is kept as a cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httpx2

from muniment.errors import ConfigurationError, EmbedderUnavailable, InvalidInput, MunimentError
from muniment_embed_openai import DESCRIPTOR
from muniment_embed_openai.options import Access, Options
from muniment_embed_openai.retries import is_used_up, seconds_to_wait
from muniment_embed_openai.said import Said, said_in

TABLE: Final = f"[plugins.{DESCRIPTOR.name}]"


@dataclass(frozen=True, slots=True)
class Refusals:
    """Makes the refusals of one embedder, ``model`` at the server of ``access``."""

    model: str
    options: Options
    access: Access

    def refused(self, response: httpx2.Response, texts: Sequence[str]) -> MunimentError:
        """For an answer that is read and is no success."""
        status, said = response.status_code, said_in(response)
        http = f"HTTP {status}"
        shown = said.shown(self.access.key, texts)
        with_words = f"{http}: {shown}" if shown else http
        # A refusal of a model or of a key has various statuses; what it says of itself comes first.
        if "model_not_found" in said.codes or said.param == "model" or status in (404, 405):
            return self._wrong(
                "unknown_model",
                f"knows no model {self.model!r}, or has no embeddings at this address ({with_words}). Nothing is used "
                "in its place; correct the model's name, or base_url",
            )
        if status in (401, 403) or "invalid_api_key" in said.codes or (status == 400 and "api key" in shown.lower()):
            return self._bad_key(status, http)
        if is_used_up(said) or status == 402:
            return self.unavailable(
                "quota", f"says that the quota is used up ({http}); add credit or raise the limit there"
            )
        if 300 <= status < 400:
            return self._wrong(
                "redirect", f"sends elsewhere ({http}), where neither texts nor a key are sent; correct base_url"
            )
        if status in (400, 413, 422):
            return self._bad_request(said, with_words)
        if status == 429:
            return self._rate_limited(seconds_to_wait(response.headers))
        return self.unavailable("failing", f"failed ({with_words}); it is asked again later")

    def unreachable(self) -> MunimentError:
        """For a connection that was not made, or was lost, as often as it was tried."""
        return self.unavailable(
            "unreachable",
            "cannot be reached, or broke the connection off; check that it runs, base_url and the network",
        )

    def timed_out(self, status: int | None) -> MunimentError:
        """For a call whose time is over; ``status`` is that of the last answer, if any came."""
        last = f", and the last answer was HTTP {status}" if status else ""
        return self.unavailable(
            "timed_out",
            f"gave no vectors within {self.options.timeout:g} s{last}; raise timeout in {TABLE} if it is slow",
        )

    def bad_answer(self, problem: str) -> MunimentError:
        """For an answer that was a success and holds something else than the vectors that were asked for."""
        return self.unavailable("bad_answer", f"{problem}; check base_url, or ask whoever runs the server")

    def wrong_dimensions(self, asked: int | None, given: int) -> MunimentError:
        """For vectors of other dimensions than ``asked``; those that no space can have where nothing was asked."""
        if asked is None:
            problem = f"gave vectors of {given} dimensions, and a space has 8 to 4,096; choose another model, or set"
        else:
            problem = f"gave vectors of {given} dimensions, not the {asked} that were asked for; correct or remove"
        return self._wrong("dimensions", f"{problem} dimensions in {TABLE}")

    def too_short(self, refused: str = "") -> MunimentError:
        """For a model that takes less text than a passage may have: it ``refused`` it, or silently reads a part."""
        return self._wrong(
            "too_short",
            f"does not read a whole text of {self.options.passage_bytes:,} tokens, so the ends of passages could not "
            f"be found; set passage_bytes in {TABLE} to the tokens that the model takes{refused and f' ({refused})'}",
        )

    def unavailable(self, reason: str, problem: str) -> EmbedderUnavailable:
        """What may be well later; ``problem`` says what the server did, and the remedy."""
        return EmbedderUnavailable(f"{self._server} {problem}.", model=self.model, reason=reason)

    def _wrong(self, reason: str, problem: str) -> ConfigurationError:
        return ConfigurationError(f"{self._server} {problem}.", model=self.model, reason=reason)

    def _bad_key(self, status: int, http: str) -> ConfigurationError:
        variable = self.access.key_variable
        if variable is None:
            return self._wrong(
                "bad_key", f"wants an API key ({http}); name the variable that holds it as api_key_env in {TABLE}"
            )
        if status == 403:
            return self._wrong("bad_key", f"does not let the API key in {variable} do this ({http}); give it access")
        return self._wrong("bad_key", f"refused the API key in {variable} ({http}); put a valid key there")

    def _bad_request(self, said: Said, with_words: str) -> MunimentError:
        dimensions = self.options.dimensions
        if dimensions is not None and "dimension" in f"{said.param} {said.message}".lower():
            return self._wrong(
                "dimensions", f"does not give {dimensions} dimensions ({with_words}); correct or remove them in {TABLE}"
            )
        return InvalidInput(
            "text",
            f"{self._server} refused it ({with_words}); change the text, or lower batch_texts in {TABLE} where it is "
            "refused beside others only.",
            model=self.model,
            reason="refused",
        )

    def _rate_limited(self, wait: float | None) -> EmbedderUnavailable:
        asked = f" and wants {wait:,.0f} s of waiting" if wait else ""
        return self.unavailable(
            "rate_limited",
            f"is asked too often (HTTP 429){asked}; raise the limit there, or lower concurrency in {TABLE}",
        )

    @property
    def _server(self) -> str:
        return f"embedder openai:{self.model}: the server at {self.access.base_url}"
