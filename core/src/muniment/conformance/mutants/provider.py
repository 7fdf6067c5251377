"""The base of the mutants of embedders: a hash embedder that knows some synonyms and has a provider that can fail.

The hash embedder alone has neither meaning nor a provider, so that nothing could be shown to break EMB-05 or EMB-06.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial

from muniment.conformance.reference_target import HashTarget
from muniment.conformance.target import FailingEmbedder, FailureKind
from muniment.errors import ConfigurationError, EmbedderUnavailable, MunimentError
from muniment.ports import Vector, Vectors
from muniment.reference import HashEmbedder
from muniment.reference.embedder import DIMENSIONS, PASSAGE_TOKENS

_WORD = re.compile(r"\w+|[^\w\s]")
_SMALL_WORDS = frozenset({"a", "by", "every", "for", "is", "of", "on", "out", "the", "to", "we", ".", "?"})
_SYNONYMS: Mapping[str, str] = {
    "kitten": "cat",
    "napping": "sleeps",
    "couch": "sofa",
    "deploy": "releases",
    "tuesdays": "tuesday",
    "sales": "revenue",
    "increased": "grew",
    "10": "ten",
    "%": "percent",
    "indent": "indentation",
    "tab": "tabs",
}


class Provider(Enum):
    """How the provider does."""

    WORKS = "works"
    UNREACHABLE = "connection refused"
    KEY_REFUSED = "401 Unauthorized"


class ProviderError(Exception):
    """What the provider's library raises: the same class for everything, with the provider's words."""


class ProvidedEmbedder(HashEmbedder):
    """Vectors from a provider; texts with words of the same meaning are near."""

    def __init__(
        self,
        dimensions: int = DIMENSIONS,
        passage_tokens: int = PASSAGE_TOKENS,
        provider: Provider = Provider.WORKS,
    ) -> None:
        super().__init__(dimensions, passage_tokens)
        self.provider = provider

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One unit vector a text. Raises EmbedderUnavailable, ConfigurationError."""
        try:
            self.connect()
        except ProviderError as error:
            raise self.translated(error) from error
        return await super().embed_passages(texts)

    def connect(self) -> None:
        """Raises ProviderError where the provider does not work."""
        if self.provider is not Provider.WORKS:
            raise ProviderError(self.provider.value)

    def translated(self, error: ProviderError) -> MunimentError:
        """The refusal for an error of the provider's library."""
        if "401" in str(error):
            return ConfigurationError("The provider refused the API key; correct it.")
        return EmbedderUnavailable(f"The provider cannot be reached: {error}.")

    def vector(self, text: str) -> Vector:
        """That of the words that carry meaning; of the text itself where there is none."""
        words = [word for word in _WORD.findall(text.casefold()) if word not in _SMALL_WORDS]
        return super().vector(" ".join(_SYNONYMS.get(word, word) for word in words) or text)


class ProviderTarget(HashTarget):
    """The target of ``ProvidedEmbedder``, or of a subclass."""

    remote = True
    semantic = True

    def __init__(self, plugin: type[ProvidedEmbedder] = ProvidedEmbedder) -> None:
        super().__init__(plugin, named=plugin.named)
        self._plugin = plugin

    def fail(self) -> Sequence[FailingEmbedder]:
        """An unknown name, a provider that is not there, and one that refuses the key."""
        kinds = {FailureKind.UNREACHABLE: Provider.UNREACHABLE, FailureKind.BAD_KEY: Provider.KEY_REFUSED}
        failing = [
            FailingEmbedder(kind, partial(self._plugin, provider=state), within=1) for kind, state in kinds.items()
        ]
        return [*super().fail(), *failing]
