"""What the benchmarks store and ask: seeded memories with the word frequencies of real text, and queries.

Words follow Zipf and Mandelbrot's law, with English stop words in front as in real text; a memory has about 1,000
characters, some words of one topic, up to 4 tags, and 1 to 3 passages whose vectors lie around its topic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from muniment import lexical

DIMENSIONS = 384
TEXTS = 3_000
"""Different texts; memories beyond that repeat them, with other tags and vectors."""
VOCABULARY = 30_000
TOPICS = 200
TAGS = 200
STRANGERS = 500
"""How many owners the memories of others have."""
_STOP_WORDS = """
    the of and to a in is it that for was on are as with be by this at from not or an have which but were they you all
    their has had will can there been if would who what when more so some no about than them only its other into
"""
STOP_WORDS = _STOP_WORDS.split()
SYLLABLES = [first + last for first in "bcdfgklmnprstv" for last in ("a", "e", "i", "o", "u", "an", "el", "or")]

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Text:
    """A content, its terms, and the topic that it is about."""

    content: str
    topic: int

    @cached_property
    def terms(self) -> lexical.Terms:
        """As the analyser gives them."""
        return lexical.analyse(self.content)


@dataclass(frozen=True)
class Query:
    """A query: its words, a tag beside them, and its vector."""

    words: str
    tag: str
    vector: Floats


class Estate:
    """Everything is drawn from one seed."""

    def __init__(self, seed: int = 11) -> None:
        self.numbers = np.random.default_rng(seed)
        dice = random.Random(seed)
        made = {"".join(dice.choices(SYLLABLES, k=dice.randint(2, 4))) for _ in range(2 * VOCABULARY)}
        self.words = np.array([*STOP_WORDS, *sorted(made, key=lambda _: dice.random())][:VOCABULARY])
        weights = 1 / (np.arange(1, len(self.words) + 1) + 2.7) ** 1.07
        self.weights = weights / weights.sum()
        self.centres = self.numbers.normal(size=(TOPICS, DIMENSIONS)).astype(np.float32)
        popularity = 1 / np.arange(1, TAGS + 1)
        self.tag_weights = popularity / popularity.sum()
        self.texts = [self._text() for _ in range(TEXTS)]

    def _text(self) -> Text:
        topic = int(self.numbers.integers(TOPICS))
        length = int(np.clip(self.numbers.normal(165, 45), 30, 320))
        drawn = self.numbers.choice(self.words, size=length, p=self.weights)
        about = self.numbers.choice(self.topic_words(topic), size=12)
        return Text(" ".join([*drawn, *about]), topic)

    def topic_words(self, topic: int) -> NDArray[np.str_]:
        """A dozen words that a topic's memories share, from common to rare."""
        ranks = np.geomspace(100, 8_000, 12).astype(int) + 7 * topic
        return self.words[ranks]

    def vectors(self, topic: int, count: int) -> Floats:
        """Unit vectors around a topic, shape ``(count, DIMENSIONS)``."""
        drawn = self.centres[topic] + self.numbers.normal(size=(count, DIMENSIONS)).astype(np.float32)
        return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)

    def tags(self) -> list[str]:
        """Up to 4 tags, the first ones commonest."""
        count = int(self.numbers.integers(0, 5))
        return [f"tag{one}" for one in sorted({int(n) for n in self.numbers.choice(TAGS, count, p=self.tag_weights)})]

    def queries(self, count: int) -> Sequence[Query]:
        """Half of them two words of a topic, half of them three with stop words around; each with a tag."""
        made: list[Query] = []
        for number in range(count):
            topic, other = (int(one) for one in self.numbers.integers(TOPICS, size=2))
            words = list(self.numbers.choice(self.topic_words(topic), size=2 + number % 2, replace=False))
            if number % 2:
                words = [*self.numbers.choice(STOP_WORDS, size=5, replace=False), *words]
            between = self.vectors(topic, 1)[0] + 0.5 * self.vectors(other, 1)[0]
            vector = (between / np.linalg.norm(between)).astype(np.float32)
            made.append(Query(" ".join(words), f"tag{int(self.numbers.integers(3, 60))}", vector))
        return made


@dataclass
class Memory:
    """One memory to be."""

    id: str
    owner: str
    text: int
    tags: list[str]
    vectors: Floats

    @property
    def whole(self) -> Floats:
        """One vector for the whole text."""
        mean = self.vectors.mean(axis=0)
        return (mean / np.linalg.norm(mean)).astype(np.float32)


def memories(
    estate: Estate, owned: dict[str, int], others: int, seed: int, *, vectors: Callable[[int], Floats] | None = None
) -> list[Memory]:
    """The memories in their order of arrival, ``others`` of them strangers'.

    ``vectors`` gives those of a text by its number; without it a memory has 1 to 3 around its topic.
    """
    dice = random.Random(seed)
    owners = [owner for owner, count in owned.items() for _ in range(count)]
    owners += [f"stranger{dice.randrange(STRANGERS)}" for _ in range(others)]
    dice.shuffle(owners)
    made: list[Memory] = []
    for owner in owners:
        text = dice.randrange(len(estate.texts))
        drawn = vectors(text) if vectors else estate.vectors(estate.texts[text].topic, 1 + len(made) % 3)
        made.append(Memory(str(UUID(int=dice.getrandbits(128))), owner, text, estate.tags(), drawn))
    return made
