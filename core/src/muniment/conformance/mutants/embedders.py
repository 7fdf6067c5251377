"""Mutants made for EMB-01 to EMB-07: what an embedder declares, gives and refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from muniment.conformance.mutants.mutant import Mutants
from muniment.conformance.mutants.provider import ProvidedEmbedder, ProviderError
from muniment.errors import ConfigurationError, EmbedderUnavailable, MunimentError
from muniment.ports import Vector, Vectors

MUTANTS = Mutants()


@MUTANTS(
    "vectors shorter than declared",
    made_for="EMB-01",
    fails="VEC-01 VEC-02 VEC-03 VEC-04 VEC-05 VEC-06 VEC-07 VEC-08 EMB-01 EMB-02 EMB-03",
)
class FewerDimensions(ProvidedEmbedder):
    """The space declares the model's full dimensions, and the vectors are cut."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Half of each."""
        return (await super().embed_passages(texts))[:, : self._space.dimensions // 2]

    async def embed_query(self, text: str) -> Vector:
        """Half of it."""
        return (await super().embed_query(text))[: self._space.dimensions // 2]


@MUTANTS("vectors not of unit length", made_for="EMB-01", fails="EMB-01 EMB-03")
class NotNormalised(ProvidedEmbedder):
    """The space promises normalised vectors, and the model's are not."""

    def vector(self, text: str) -> Vector:
        """Longer."""
        return super().vector(text) * np.float32(1.5)


@MUTANTS("numbers of double precision", made_for="EMB-01", fails="EMB-01")
class DoublePrecision(ProvidedEmbedder):
    """Vectors come as the provider's JSON has them."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """As float64."""
        return (await super().embed_passages(texts)).astype(np.float64)  # type: ignore[return-value]


@MUTANTS(
    "batch in the order of completion",
    made_for="EMB-02",
    fails="VEC-01 VEC-03 VEC-07 VEC-08 EMB-02 EMB-05 EMB-06 EMB-07",
)
class OrdersByCompletion(ProvidedEmbedder):
    """A batch is sent as several requests, and their vectors are kept in the order in which they come back."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """The last first."""
        return (await super().embed_passages(texts))[::-1]


@MUTANTS("vector depends on the batch", made_for="EMB-02", fails="VEC-01 VEC-07 VEC-08 EMB-02")
class PaddingCounts(ProvidedEmbedder):
    """What a text is padded with to the length of the longest in its batch counts as text."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Pad."""
        longest = max(map(self.tokens, texts), default=0)
        padded = [f"{text}{' pad' * min(longest - self.tokens(text), 8)}" for text in texts]
        return await super().embed_passages(padded)


@MUTANTS("empty batch refused", made_for="EMB-02", fails="EMB-02")
class RefusesEmptyBatch(ProvidedEmbedder):
    """A request without a text is sent, which the provider refuses."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Refuse without any."""
        if not texts:
            raise EmbedderUnavailable("The provider got nothing to embed.")
        return await super().embed_passages(texts)


@MUTANTS("white space divided by nothing", made_for="EMB-03", fails="EMB-03")
class WhiteSpaceIsNan(ProvidedEmbedder):
    """A text without a word has a sum of zero, and dividing by its length gives NaN."""

    def vector(self, text: str) -> Vector:
        """Not a number."""
        return super().vector(text) if text.strip() else np.full(self._space.dimensions, np.nan, dtype=np.float32)


@MUTANTS("emoji and CJK unknown to the model", made_for="EMB-03", fails="EMB-03")
class OneVectorBeyondAscii(ProvidedEmbedder):
    """Whatever is not ASCII is one unknown token."""

    def vector(self, text: str) -> Vector:
        """Without the rest."""
        return super().vector(text.encode("ascii", "ignore").decode().strip() or "unknown")


@MUTANTS("truncation", made_for="EMB-04", fails="EMB-04")
class Truncates(ProvidedEmbedder):
    """The model reads fewer tokens than the embedder says that it takes."""

    def vector(self, text: str) -> Vector:
        """The first 100 words."""
        return super().vector(" ".join(text.split(" ")[:100]))


@MUTANTS("tokens counted up to the limit", made_for="EMB-04", fails="EMB-04")
class CountsUpToLimit(ProvidedEmbedder):
    """The tokenizer truncates, so no text seems too long."""

    def tokens(self, text: str) -> int:
        """At most the limit."""
        return min(super().tokens(text), self._space.passage_tokens)


@MUTANTS("nearness turned round", made_for="EMB-05", fails="VEC-07 VEC-08 EMB-05")
class FarIsNear(ProvidedEmbedder):
    """Queries and passages are embedded with opposite signs."""

    async def embed_query(self, text: str) -> Vector:
        """The other way."""
        return -await super().embed_query(text)


@MUTANTS("outage answered with zeros", made_for="EMB-06", fails="EMB-06")
class ZerosOnOutage(ProvidedEmbedder):
    """Where the provider cannot be reached, every vector is zero."""

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Zeros instead of a refusal."""
        try:
            return await super().embed_passages(texts)
        except EmbedderUnavailable:
            return np.zeros((len(texts), self._space.dimensions), dtype=np.float32)


@MUTANTS("bad key taken for an outage", made_for="EMB-06", fails="EMB-06")
class KeyIsOutage(ProvidedEmbedder):
    """Whatever the provider answers but vectors is the same refusal."""

    def translated(self, error: ProviderError) -> MunimentError:
        """Without the reason."""
        return EmbedderUnavailable("The provider did not answer as it should.")


@MUTANTS("unknown model replaced by the default", made_for="EMB-07", fails="EMB-07")
class SubstitutesModel(ProvidedEmbedder):
    """A name that is not known gives the usual model."""

    @classmethod
    def named(cls, spec: str) -> Self:
        """The default instead of a refusal."""
        try:
            return super().named(spec)
        except ConfigurationError:
            return cls()


@MUTANTS("unknown model refused without its name", made_for="EMB-07", fails="EMB-07")
class HidesModelName(ProvidedEmbedder):
    """The refusal does not say which name it refuses."""

    @classmethod
    def named(cls, spec: str) -> Self:
        """Refuse without the name."""
        try:
            return super().named(spec)
        except ConfigurationError:
            raise ConfigurationError("The model could not be loaded.") from None
