"""What is stored of a text stays as it is: its terms and its passages, against recorded digests.

Terms and passage hashes outlive the code that made them. Whatever changes one of these digests must come with another
version of the analyser, or makes every stored passage of such a text a stranger to its next edit.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable

import pytest

from muniment.lexical import ANALYSER, analyse, query_terms
from muniment.passages import group, halves, split

TEXTS = 10
"""Texts of each kind."""
LIMITS = (8, 60, 254, 512)

ENDINGS = ["", "", "s", "'s", "ed", "ing", "ly", "ational", "fulness", "ies", "ization", "er", "y"]
SYLLABLES = [first + last for first in "bcdfgklmnprstvw" for last in ("a", "e", "i", "o", "u", "an", "er", "ous")]
FOREIGN = [
    *("Geschäftsführer", "Köln", "straße", "ﬁne", "２０２４", "naïve\u2019s", "l\u2019été", "e\u0301te\u0301"),
    *("Ærø", "Þór", "ŉ", "привет", "Мир", "नमस्ते", "दुनिया", "שָׁלוֹם", "مَرْحَبًا", "สวัสดีครับ", "ကမ္ဘာ", "\ufdfa"),
    *("我们选择了数据库", "データベース데이터베이스", "\u1112\u1161\u11ab\u1100\u1173\u11af", "co\u00adop"),
    *("İstanbul", "½", "Ⅷ", "x²", "👩\u200d👩\u200d👧", "👍🏽", "🇩🇪🇫🇷", "a" + 30 * "\u0301\u0316"),
]
LINE_ENDS = ["\n", "\n\n", "\r\n", "\r\n\r\n", " \n\t\n", "\u2028", "\x0b", "\n\n\n"]

Text = Callable[[random.Random], str]


def word(dice: random.Random) -> str:
    """A made-up word, now and then capitalised."""
    made = "".join(dice.choices(SYLLABLES, k=dice.choice((1, 2, 2, 3)))) + dice.choice(ENDINGS)
    return dice.choice((str, str, str, str, str.capitalize, str.upper))(made)


def code(dice: random.Random) -> str:
    """An identifier, version, host, path, address or operator."""
    one, two, three = word(dice), word(dice), word(dice)
    return dice.choice(
        (
            f"{one}_{two}_{three}()",
            one + two.capitalize() + three.upper(),
            f"v{dice.randint(0, 9)}.{dice.randint(0, 99)}.{dice.randint(0, 9)}-{one}",
            f"https://{one}.{two}.example.org/{three}/{one}-{two}.html?{one}={dice.randint(0, 999)}#{two}",
            f"src/{one}/{two}{dice.randint(0, 99)}.{three}",
            f"{one}@{two}.{three}.org:5432",
            f"std::{one}<{two}>->{three}",
            f"__{one}__.{two}--{three}",
            dice.choice(("C++", "C#", ".env", "a'b", "...", "__", "-x", "HTTPServer2", "x1y2z3")),
        )
    )


def prose(dice: random.Random) -> str:
    """Paragraphs of sentences."""
    made: list[str] = []
    for _ in range(dice.randint(2, 12)):
        part = code if dice.random() < 0.3 else word
        sentence = " ".join([word(dice), *(part(dice) for _ in range(dice.randint(2, 24)))])
        made.append(sentence + dice.choice((". ", ". ", "? ", '." ', "; ", ".\n\n", "\u2026 ")))
    return "".join(made)


def markdown(dice: random.Random) -> str:
    """Headings, paragraphs, lists and code, with every kind of line end."""
    made: list[str] = []
    for _ in range(dice.randint(2, 8)):
        made += [f"{'#' * dice.randint(1, 3)} {word(dice)} {word(dice)}", "", prose(dice)]
        made += [f"- {word(dice)} {code(dice)}" for _ in range(dice.randint(0, 5))]
        made += [f"    {code(dice)} = {code(dice)}" for _ in range(dice.randint(0, 5))]
        made += [f"{dice.choice(('...', '!', '…', '。'))} {word(dice)}" for _ in range(dice.randint(0, 2))]
    return "".join(line + dice.choice(LINE_ENDS) for line in made)


def long_line(dice: random.Random) -> str:
    """Words without punctuation, some of them endless."""
    words = [word(dice) for _ in range(dice.randint(100, 400))]
    words[dice.randint(0, 50)] = "".join(dice.choices("abcdef0123456789/+=\u0301", k=dice.randint(41, 400)))
    return dice.choice((" ", "  ", "\t")).join(words)


def foreign(dice: random.Random) -> str:
    """Many scripts, with and without spaces, and what belongs together."""

    def part() -> str:
        return dice.choice((dice.choice(FOREIGN), dice.choice(FOREIGN) * dice.randint(1, 30), word(dice), code(dice)))

    return "".join(part() + dice.choice((" ", " ", "", "。", "！", "\u200b")) for _ in range(150))


def repeated(dice: random.Random) -> str:
    """The same again and again, so that boundaries tie."""
    return dice.choice((word(dice), code(dice), word(dice) + ". ", word(dice) + "\n")) * 200


KINDS: dict[str, tuple[Text, str, str]] = {
    "prose": (prose, "7b2b924c18a95606", "744720eb51cec4cd"),
    "markdown": (markdown, "89338458c013378f", "a02b3ab84c07f36a"),
    "a long line": (long_line, "9788625145acce85", "f9c65e278c312f3e"),
    "many scripts": (foreign, "4f3e04645c0f18a4", "937382f3719a794a"),
    "repeated": (repeated, "fe2d4343dfa05d40", "bebcb6558f1e0438"),
}
"""By kind: how a text is made, the digest of the terms, and that of the passages."""


def texts(kind: str) -> Iterable[str]:
    """The texts of a kind, the same on every machine."""
    dice = random.Random(kind)
    return [KINDS[kind][0](dice) for _ in range(TEXTS)]


def tokens(text: str) -> int:
    """About what a word-piece tokeniser counts."""
    return -(-len(text) // 4) if text.isascii() else len(text)


def passages(text: str, limit: int) -> list[str]:
    """A text's passages, cut as the engine does it."""
    waiting, units = split(text)[::-1], list[str]()
    while waiting:
        unit = waiting.pop()
        if tokens(unit) > limit:
            waiting.extend(reversed(halves(unit)))
        else:
            units.append(unit)
    return group(units, [tokens(unit) for unit in units], limit)


def mark(found: Iterable[object]) -> str:
    """A digest of JSON that is the same everywhere."""
    return hashlib.sha256("\n".join(map(json.dumps, found)).encode()).hexdigest()[:16]


@pytest.mark.parametrize("kind", KINDS)
def test_terms_are_those_that_were_recorded(kind: str) -> None:
    """LEX-01: for one analyser a text has the same terms, frequencies and length, and a query the same weights."""
    assert ANALYSER == "muniment-1-4931fbdc"
    found: list[object] = []
    for text in texts(kind):
        terms = analyse(text)
        found += [sorted(terms.frequencies.items()), terms.length, sorted(query_terms(text[:400]).items())]
    assert mark(found) == KINDS[kind][1]


@pytest.mark.parametrize("kind", KINDS)
def test_passages_are_those_that_were_recorded(kind: str) -> None:
    """VEC-04: a text is cut where it was cut before, into units, into halves of them, and into passages."""
    found: list[object] = []
    for text in texts(kind):
        units = split(text)
        found += [units, [halves(unit) for unit in units if len(unit) > 1]]
        found += [passages(text, limit) for limit in LIMITS]
    assert mark(found) == KINDS[kind][2]
