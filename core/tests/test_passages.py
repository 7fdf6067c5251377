"""Where texts are cut, and that an edit leaves the other passages alone."""

from __future__ import annotations

import math
import random
import statistics
import time
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muniment.passages import MAX_UNIT, digest, group, halves, split

LENGTH = 13_000
ANY_TEXT = (
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=600)
    | st.text(alphabet="ab.# \n\r\t\u0301。数👩\u200d🇩", max_size=1500)
    | st.text(alphabet="ab", min_size=190, max_size=900)
)


def tokens(text: str) -> int:
    """About what a word-piece tokeniser counts: a quarter of the letters, each character of Han."""
    return math.ceil(len(text) / 4) if text.isascii() else len(text)


def passages(text: str, limit: int) -> list[str]:
    """A text's passages, cut as a caller does it."""
    waiting = split(text)[::-1]
    units: list[str] = []
    while waiting:
        unit = waiting.pop()
        if tokens(unit) > limit:
            waiting.extend(reversed(halves(unit)))
        else:
            units.append(unit)
    return group(units, [tokens(unit) for unit in units], limit)


def word(source: random.Random) -> str:
    """A made-up word."""
    return "".join(source.choices("etaoinshrdlucmfwyp", k=source.randint(2, 10)))


def sentence(source: random.Random) -> str:
    """A made-up sentence of 4 to 24 words."""
    return " ".join(word(source) for _ in range(source.randint(4, 24))).capitalize() + "."


def han(source: random.Random) -> str:
    """A made-up sentence without spaces."""
    return "".join(chr(source.randint(0x4E00, 0x5FFF)) for _ in range(source.randint(6, 50))) + "。"


def paragraph(source: random.Random) -> str:
    """Two to eight sentences."""
    return " ".join(sentence(source) for _ in range(source.randint(2, 8)))


def markdown(source: random.Random) -> str:
    """A heading, a paragraph, and a block of code."""
    lines = [f"    {word(source)}_{word(source)} = {word(source)}()" for _ in range(source.randint(2, 15))]
    code = "\n".join(["```python", *lines, "```"])
    return f"## {word(source)} {word(source)}\n\n{paragraph(source)}\n\n{code}"


KINDS: dict[str, tuple[Callable[[random.Random], str], str]] = {
    "prose": (paragraph, "\n\n"),
    "one giant paragraph": (sentence, " "),
    "no punctuation": (word, " "),
    "list items": (lambda source: f"- {word(source)} {word(source)} {word(source)}", "\n"),
    "markdown with code": (markdown, "\n\n"),
    "han without spaces": (han, ""),
    "one endless word": (word, ""),
}


def document(kind: str) -> str:
    """A document of 13,000 characters."""
    part, joiner = KINDS[kind]
    source = random.Random(kind)
    parts: list[str] = []
    while sum(map(len, parts)) < LENGTH:
        parts.append(part(source))
    return joiner.join(parts)[:LENGTH]


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_changes_few_passages(kind: str) -> None:
    """VEC-04: over 200 seeded edits, the first character included, median at most 2, 95th percentile at most 5."""
    text = document(kind)
    known = {digest(passage) for passage in passages(text, 254)}
    source = random.Random(4)
    changed: list[int] = []
    for edit in range(200):
        place = 0 if edit < 4 else source.randrange(LENGTH)
        insert = "" if edit % 4 == 3 else (sentence(source) if edit % 4 == 1 else word(source)) + " "
        remove = source.choice((1, 6, 90)) if edit % 4 >= 2 else 0
        edited = text[:place] + insert + text[place + remove :]
        changed.append(len({digest(passage) for passage in passages(edited, 254)} - known))
    assert statistics.median(changed) <= 2
    assert sorted(changed)[189] <= 5


@pytest.mark.parametrize("kind", KINDS)
def test_passages_are_of_a_useful_size(kind: str) -> None:
    """On average 40 to 80% of the limit: neither crumbs, nor always cut at the limit."""
    sizes = [tokens(passage) for passage in passages(document(kind), 254)]
    assert 0.4 <= statistics.mean(sizes) / 254 <= 0.8
    assert max(sizes) <= 254


@given(ANY_TEXT)
def test_units_are_the_text(text: str) -> None:
    """The units joined are the text, none is empty, none is longer than the maximum."""
    units = split(text)
    assert "".join(units) == text
    assert all(1 <= len(unit) <= MAX_UNIT for unit in units)


@given(ANY_TEXT, st.integers(min_value=1, max_value=300))
def test_passages_are_the_text_and_fit(text: str, limit: int) -> None:
    """EMB-04: for any limit, passages joined are the text, and the counts in each sum to at most the limit."""
    units = split(text)
    waiting, small = units[::-1], list[str]()
    while waiting:
        unit = waiting.pop()
        if len(unit) > limit:
            waiting.extend(reversed(halves(unit)))
        else:
            small.append(unit)
    cut = group(small, [len(unit) for unit in small], limit)
    assert "".join(cut) == text
    assert all(1 <= len(passage) <= limit for passage in cut)


@given(st.text(min_size=2, max_size=MAX_UNIT))
def test_halves_are_both_something(unit: str) -> None:
    """A unit of two or more code points is cut into two non-empty parts."""
    first, second = halves(unit)
    assert first
    assert second
    assert first + second == unit


def test_what_cannot_be_cut_or_grouped_is_refused() -> None:
    """One character has no halves; a count above the limit, a negative one and a missing one are errors."""
    with pytest.raises(ValueError, match="cannot be cut"):
        halves("a")
    with pytest.raises(ValueError, match="halve it first"):
        group(["a"], [17], 16)
    with pytest.raises(ValueError, match="does not fit"):
        group(["a"], [-1], 16)
    with pytest.raises(ValueError, match="each unit needs one"):
        group(["a", "b"], [1], 16)
    assert group([], [], 16) == []
    assert split("") == []


def test_a_text_within_the_limit_is_one_passage() -> None:
    """What the embedder can take at once is not cut."""
    assert passages("One. Two.\n\n# Three\n\nFour.", 254) == ["One. Two.\n\n# Three\n\nFour."]


def test_headings_begin_passages() -> None:
    """In a text with a heading every hundred tokens, nearly every passage begins at one."""
    source = random.Random(9)
    text = "".join(f"## {word(source)}\n\n{sentence(source)} {sentence(source)}\n\n" for _ in range(60))
    cut = passages(text, 254)
    assert len(cut) > 5
    assert sum(passage.startswith("## ") for passage in cut) >= 0.9 * len(cut)


@pytest.mark.parametrize("unit", ["👨‍👩‍👧‍👦", "e\u0301\u0323", "👍🏽", "🇩🇪", "\r\n", "\u1112\u1161\u11ab", "षि"])
def test_no_cut_inside_a_character(unit: str) -> None:
    """Joined emoji, flags, combining marks, Hangul jamo and CRLF stay whole."""
    pieces = split(unit * 2000)
    assert len(pieces) > 5
    assert all(len(piece) % len(unit) == 0 for piece in pieces)
    assert all(unicodedata.category(piece[0])[0] != "M" for piece in pieces)


def test_pieces_end_after_white_space() -> None:
    """A sentence that is too long is cut between words."""
    pieces = split(" ".join(["word"] * 400))
    assert len(pieces) > 5
    assert all(piece.endswith(" ") for piece in pieces[:-1])


def test_digests_are_the_same_everywhere() -> None:
    """A digest is the beginning of a SHA-256, so that stored ones can be compared."""
    assert digest("") == "e3b0c44298fc1c149afbf4c8996fb924"
    assert digest("Köln") != digest("Koln")


@pytest.mark.parametrize(
    "unit",
    [
        "x",
        "\n",
        " ",
        " \n",
        ".",
        "。",
        "\u0301",
        "\u0301\u0316",
        "👨‍👩‍👧",
        "🇩",
        "数",
        "a ",
        '."',
        *"\r\x0b\x0c\x85\u2028\u2029",
        "\r\n",
        "\n\r",
        " \r",
    ],
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """64,000 characters of anything are cut at once; a quadratic step would take minutes."""
    text = (unit * 64_000)[:64_000]
    started = time.perf_counter()
    units = split(text)
    assert "".join(units) == text
    group(units, [tokens(unit) for unit in units], 254)
    group(units, [0] * len(units), 1)
    assert time.perf_counter() - started < 5
