"""The analyser: which terms a text is found by.

Owns how a text becomes terms, for a memory and for a query alike, and the fingerprint that stored terms
carry. It leaves what a term is worth to `ranking`, and where terms are kept to the storages.

A text is folded (compatibility forms, case and accents go; `Köln`, `köln` and `koln` are one term) and cut
into tokens at white space and punctuation. Then, for each token:

- A word of English letters gives its Snowball stem; a word of any other script gives itself.
- A compound (identifier, version, host, path, URL, address) gives itself whole, each of its parts at every
  level (`/ : @ = …`, then `-`, then `.`, then `_`, then camelCase and letters against digits), each dotted
  ending (`example.com` of `db.example.com`), and a version without its `v`.
- Scripts written without spaces (Han, kana, Hangul, Thai, Lao, Khmer, Burmese) give each pair of neighbouring
  characters, and each character for queries of only one. Vowel signs and tone marks stay with their
  character.
"""

from __future__ import annotations

import hashlib
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import add, itemgetter
from typing import Final, Protocol, cast

import snowballstemmer

MAX_TERM: Final = 64
"""The longest term, in code points; a longer token ends in a digest of itself."""

_VERSION: Final = 1
_STEMMED: Final = """
    caresses ponies ties generously generalization relational conditional hopping hoping falling happily skies
    dying news inning proceed exceed succeed herring evening earring commune communism arsenic international
    universities organization sensational triplicate formative adjustable replacement communication rate probate
    controll roll dog's dogs's youth boyish saying said past pasted pastes toothbrush fluently ogist
"""
"""Words on which the stemmer's rules and releases differ, for the fingerprint."""

STOP_WEIGHT: Final = 0.05
"""What a stop word weighs beside a telling word of a query. On Cranfield every value up to 0.1 gives the same order
quality as leaving stop words out, and 1.0 costs 0.01 of nDCG@10."""

_STOP_WORDS: Final = """
    a an the and or but if so than then of at by for with from to in on into as is are was were be been being am do
    did has have had having it its this that these those there i me my we our you your he him his she her they
    them their what which who whom how when where why not no nor can could will would should about
"""

# Accents, Hebrew points, Arabic vowel signs, and characters that are not seen.
_DROPPED = re.compile(
    "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f"
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u00ad\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufeff]+"
)
_LONG_RUN = re.compile(r"([^\w\s]{32})[^\w\s]++")
_BASE_LETTERS: Final = str.maketrans("øØłŁđĐðÐı\u2019\u02bc\u2010\u2011", "oOlLdDdDi''--") | {
    ord(letter): base for letter, base in (("þ", "th"), ("Þ", "Th"), ("æ", "ae"), ("Æ", "Ae"), ("œ", "oe"), ("Œ", "Oe"))
}

_UNSPACED: Final = (
    "\u0e01-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_JOINERS: Final = r"(?:://|::|->|[-.'/:@\\=&?#+%~])"


def _spacing_marks() -> str:
    """The combining marks that are part of a word's spelling, as the inside of a character class."""
    ranges = ((0x0483, 0x1CFF), (0x3099, 0x309A), (0xA66F, 0xABFF), (0x10A00, 0x11FFF), (0x1E000, 0x1E9FF))
    marks = (chr(code) for first, last in ranges for code in range(first, last + 1))
    return "".join(mark for mark in marks if unicodedata.category(mark)[0] == "M")


_SPELLED: Final = _spacing_marks()
_WORD: Final = rf"(?:[^\W{_UNSPACED}]++[{_SPELLED}]*+)++"
_ASCII_TOKEN = re.compile(rf"\w++(?:{_JOINERS}\w++)*+(?:\+\+|\#(?!\w))?", re.ASCII)
_TOKEN = re.compile(rf"[{_UNSPACED}](?:[{_UNSPACED}]|[{_SPELLED}])*+|{_WORD}(?:{_JOINERS}{_WORD})*+(?:\+\+|\#(?!\w))?")
_UNSPACED_START = re.compile(f"[{_UNSPACED}]")
_CHARACTER = re.compile(rf"[^{_SPELLED}][{_SPELLED}]*+|[{_SPELLED}]++")
_COMPONENT_ENDS = re.compile(r"://|::|->|[/:@\\=&?#+%~]")
_ENGLISH = re.compile(r"[a-z']+\Z")
_WORD_SHAPES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class _Stemmer(Protocol):
    def stemWord(self, word: str, /) -> str: ...


_ENGLISH_STEMMER: Final = cast("_Stemmer", snowballstemmer.stemmer("english"))  # pyright: ignore[reportUnknownMemberType]
_ONE_AT_A_TIME: Final = threading.Lock()
_KEPT: Final = 65_536


@dataclass(frozen=True, slots=True)
class Terms:
    """What a text is found by: how often each term occurs, and how many words there are.

    `length` counts what a reader would call words: each token once, however many parts it also gives, and
    once more for every 64 code points of a longer one; the parts between `/ : @ = …` of a path or URL each
    count; a run of a script without spaces counts its pairs. BM25 takes it as the memory's length.
    """

    frequencies: Mapping[str, int]
    length: int


def analyse(text: str) -> Terms:
    """The terms of a memory's content, stop words included. A token counts each of its different terms once.

    Every word of the text, given to `query_terms`, yields at least one of them, unless it holds no letter or
    digit. Terms have 1 to `MAX_TERM` code points and hold neither NUL nor white space. Time is linear in the
    text.
    """
    found = list(map(_EXPANSIONS.__getitem__, _tokens(text)))
    frequencies = Counter(chain.from_iterable(map(itemgetter(0), found)))
    return Terms(frequencies=dict(frequencies), length=sum(map(itemgetter(1), found)))


def query_terms(text: str) -> Mapping[str, float]:
    """The terms that a query asks for, each with its weight, analysed as `analyse` does.

    A term weighs as often as it occurs. Beside telling words a stop word weighs `STOP_WEIGHT` of that: it still finds
    a memory that holds nothing else of the query, and hardly moves the order of the others. Runs of scripts without
    spaces ask for their pairs only, and a lone character for itself.
    """
    terms = Counter(
        chain.from_iterable(
            _pairs(_characters(token)) if _UNSPACED_START.match(token) else _EXPANSIONS[token][0]
            for token in _tokens(text)
        )
    )
    light = STOP_WEIGHT if terms.keys() - _STOP_TERMS else 1.0
    return {term: count * (light if term in _STOP_TERMS else 1.0) for term, count in terms.items()}


def _tokens(text: str) -> list[str]:
    """The tokens of a text, folded but for case, which still tells the parts of a compound."""
    if text.isascii():
        return _ASCII_TOKEN.findall(text)
    return _TOKEN.findall(_folded(text))


def _folded(text: str) -> str:
    """A text without accents, points, invisible characters and compatibility forms.

    Long runs of marks are shortened first: sorting one into canonical order takes the square of its length.
    """
    spaced = text.replace("\u200b", " ")
    short = _LONG_RUN.sub(r"\1", _DROPPED.sub("", spaced))
    bare = _DROPPED.sub("", unicodedata.normalize("NFKD", short))
    return unicodedata.normalize("NFC", bare.translate(_BASE_LETTERS))


def _characters(run: str) -> Sequence[str]:
    """The characters of a run, each with its vowel signs and tone marks."""
    return run if run.isalnum() else [_bounded(character) for character in _CHARACTER.findall(run)]


def _pairs(characters: Sequence[str]) -> Sequence[str]:
    if len(characters) < 2:
        return characters
    pairs = list(map(add, characters, characters[1:]))
    return pairs if isinstance(characters, str) else [_bounded(pair) for pair in pairs]


class _Expansions(dict[str, tuple[Sequence[str], int]]):
    """By token its terms, and how many words it counts as; those of short tokens are kept. When they are too many all
    are forgotten: to note which were used last costs more than making some again."""

    def __missing__(self, token: str) -> tuple[Sequence[str], int]:
        if _UNSPACED_START.match(token):
            pairs = _pairs(characters := _characters(token))
            return [*pairs, *characters] if len(characters) > 1 else pairs, len(pairs)
        found = _expansion(token)
        if len(token) <= MAX_TERM:
            if len(self) >= _KEPT:
                self.clear()
            self[token] = found
        return found


def _expansion(token: str) -> tuple[Sequence[str], int]:
    """The same of a token that has no script without spaces, each term once."""
    if _is_plain(token):
        return (_stem(token.casefold()),), 1 + len(token) // (MAX_TERM + 1)
    components = [part for part in _COMPONENT_ENDS.split(token) if _has_word(part)]
    terms: dict[str, None] = {}
    if len(components) != 1 or components[0] != token:
        terms[_bounded(token.casefold())] = None
    terms |= dict.fromkeys(chain.from_iterable(map(_terms_of_component, components)))
    if not components:
        return (), 0
    return tuple(terms), sum(1 + len(component) // (MAX_TERM + 1) for component in components)


def _has_word(text: str) -> bool:
    return bool(text.strip("_.-'"))


def _terms_of_component(component: str) -> Iterator[str]:
    if "-" not in component:
        yield from _terms_of_dotted(component)
        return
    yield _bounded(component.casefold())
    yield from _dotted_endings(component)
    for part in component.split("-"):
        if _has_word(part):
            yield from _terms_of_dotted(part)


def _terms_of_dotted(name: str) -> Iterator[str]:
    if "." not in name:
        yield from _terms_of_identifier(name)
        return
    yield _bounded(name.casefold())
    yield from _dotted_endings(name)
    if name[0] in "vV" and name[1:2].isdigit():
        yield _bounded(name[1:].casefold())
    for part in name.split("."):
        if _has_word(part):
            yield from _terms_of_identifier(part)


def _dotted_endings(name: str) -> Iterator[str]:
    """The last two and three parts of a dotted name, where that is not the whole and no end of a version."""
    parts = name.rsplit(".", 3)
    for count in (2, 3):
        if len(parts) > count and parts[-count][:1].isalpha():
            yield _bounded(".".join(parts[-count:]).casefold())


def _terms_of_identifier(name: str) -> Iterator[str]:
    if "_" not in name:
        yield from _terms_of_word(name)
        return
    yield _bounded(name.casefold())
    for part in name.split("_"):
        if _has_word(part):
            yield from _terms_of_word(part)


def _terms_of_word(word: str) -> Iterator[str]:
    folded = word.casefold()
    yield _stem(folded)
    if _is_plain(word):
        return
    elided = folded.split("'")
    if len(elided) > 1 and any(len(part) > 2 for part in elided[1:]):
        yield from (_stem(part) for part in elided if len(part) > 1)
    shapes = _WORD_SHAPES.findall(word)
    if word.isascii() and 1 < len(shapes) <= 8 and "'" not in word:
        yield from (_stem(shape.casefold()) for shape in shapes if len(shape) > 1 or shape.isdigit())


def _is_plain(word: str) -> bool:
    """Whether a token is one word of letters, whose case tells no parts of it."""
    return word.isalpha() and (word.islower() or word[1:].islower() or word.isupper())


def _stem(word: str) -> str:
    return _english_stem(word) if len(word) <= MAX_TERM and _ENGLISH.match(word) else _bounded(word)


@lru_cache(maxsize=_KEPT)
def _english_stem(word: str) -> str:
    with _ONE_AT_A_TIME:
        return _ENGLISH_STEMMER.stemWord(word)


def _bounded(term: str) -> str:
    if len(term) <= MAX_TERM:
        return term
    mark = hashlib.sha256(term.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{term[: MAX_TERM - len(mark) - 1]}~{mark}"


def _fingerprint() -> str:
    rules = f"{_VERSION} {' '.join(map(_english_stem, _STEMMED.split()))}"
    return f"muniment-{_VERSION}-{hashlib.sha256(rules.encode()).hexdigest()[:8]}"


_EXPANSIONS: Final = _Expansions()
_STOP_TERMS: Final = frozenset(map(_english_stem, _STOP_WORDS.split()))

ANALYSER: Final[str] = _fingerprint()
"""The fingerprint of these rules; terms that were stored under another one are to be made anew.

It comes from the version of the rules and from what the installed stemmer does to words that tell its releases apart,
so the stemmer in C and the one in Python have the same. Python's version of Unicode is left out: it differs in
characters that hardly anybody writes yet, and servers on two versions of Python may share one storage.
"""
