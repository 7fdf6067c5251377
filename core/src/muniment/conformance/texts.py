"""Texts that checks make: seeded documents of sentences, paragraphs and headings, in which every word is
traceable."""

from __future__ import annotations

from random import Random

_SYLLABLES = (
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "je",
    "ki",
    "lo",
    "mu",
    "na",
    "pe",
    "ri",
    "so",
    "tu",
    "ve",
    "wi",
    "zo",
)


def word(random: Random) -> str:
    """A word that is hardly ever made twice."""
    return "".join(random.choice(_SYLLABLES) for _ in range(random.randint(2, 5)))


def document(random: Random, length: int) -> str:
    """A document of exactly ``length`` characters: headings, paragraphs of some sentences, a list now and
    then."""
    parts: list[str] = []
    size = 0
    while size < length:
        part = f"## {word(random).title()} {word(random)}\n\n" if random.random() < 0.2 else _paragraph(random)
        parts.append(part)
        size += len(part)
    return "".join(parts)[:length]


def _paragraph(random: Random) -> str:
    if random.random() < 0.15:
        return "".join(f"- {_sentence(random)}\n" for _ in range(random.randint(2, 5))) + "\n"
    return " ".join(_sentence(random) for _ in range(random.randint(2, 6))) + "\n\n"


def _sentence(random: Random) -> str:
    words = [word(random) for _ in range(random.randint(5, 18))]
    return " ".join(words).capitalize() + random.choice((".", ".", ".", "!", "?"))
