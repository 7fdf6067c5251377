"""Which terms a text is found by, and that a query finds them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snowballstemmer.english_stemmer import EnglishStemmer  # pyright: ignore[reportMissingTypeStubs]

from muniment.lexical import ANALYSER, MAX_TERM, STOP_WEIGHT, analyse, query_terms

MIXED = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200) | st.text(
    alphabet="aB7é数ーกุ ़한ß'.-_/:@+#\u200b\u0301\t", max_size=200
)

FOUND_BY = [
    ("rolled back deploy-v2.4.7-hotfix on the edge nodes", "v2.4.7", "v2.4.7"),
    ("rolled back deploy-v2.4.7-hotfix on the edge nodes", "hotfix", "hotfix"),
    ("rolled back deploy-v2.4.7-hotfix on the edge nodes", "deploy-v2.4.7-hotfix", "deploy-v2.4.7-hotfix"),
    ("rolled back deploy-v2.4.7-hotfix on the edge nodes", "2.4.7", "2.4.7"),
    ("rolled back deploy-v2.4.7-hotfix on the edge nodes", "rolled back deployment", "deploy"),
    ("parse_user_config() raises KeyError when DB_URL is unset", "parse_user_config", "parse_user_config"),
    ("parse_user_config() raises KeyError when DB_URL is unset", "DB_URL", "db_url"),
    ("parse_user_config() raises KeyError when DB_URL is unset", "KeyError", "keyerror"),
    ("parse_user_config() raises KeyError when DB_URL is unset", "user config", "config"),
    ("parse_user_config() raises KeyError when DB_URL is unset", "key error", "error"),
    ("我们选择了 PostgreSQL 作为主数据库", "数据库", "据库"),
    ("我们选择了 PostgreSQL 作为主数据库", "主数据库", "主数"),
    ("我们选择了PostgreSQL作为主数据库", "PostgreSQL", "postgresql"),
    ("我们选择了 PostgreSQL 作为主数据库", "库", "库"),
    ("Der Geschäftsführer bevorzugt Köln", "köln", "koln"),
    ("Der Geschäftsführer bevorzugt Köln", "Geschäftsführer", "geschaftsfuhr"),
    ("Der Geschäftsführer bevorzugt Köln", "koln", "koln"),
    ("Der Geschäftsführer bevorzugt Ko\u0308ln", "KÖLN", "koln"),
    ("prod DB is at db.example.com:5432, user svc-mem", "db.example.com", "db.example.com"),
    ("prod DB is at db.example.com:5432, user svc-mem", "5432", "5432"),
    ("prod DB is at db.example.com:5432, user svc-mem", "svc-mem", "svc-mem"),
    ("prod DB is at db.example.com:5432, user svc-mem", "example.com", "example.com"),
    ("To be, or not to be", "to be or not to be", "not"),
    ("the running dogs were found", "dog ran zebra", "dog"),
    ("the running dogs were found", "runs", "run"),
    ("see https://docs.example.org/guide/set-up.html?v=2", "set-up.html", "set-up.html"),
    ("mail ops@mail.example.org", "mail.example.org", "mail.example.org"),
    ("an XMLHttpRequest in src/net/httpClient.ts", "client", "client"),
    ("an XMLHttpRequest in src/net/httpClient.ts", "request", "request"),
    ("written in C++ and C#", "C#", "c#"),
    ("die Straße", "STRASSE", "strass"),
    ("the dog\u2019s bowl", "dogs", "dog"),
    ("ﬁne ２０２４", "fine 2024", "2024"),
    ("नमस्ते दुनिया", "दुनिया", "दुनिया"),
    ("שָׁלוֹם עולם", "שלום", "שלום"),
    ("مَرْحَبًا", "مرحبا", "مرحبا"),
    ("สวัสดีครับ", "ครับ", "ครั"),
    ("привет Мир", "мир", "мир"),
]


@pytest.mark.parametrize(("content", "query", "shared"), FOUND_BY)
def test_a_memory_is_found_by(content: str, query: str, shared: str) -> None:
    """LEX-01, LEX-03: the query and the memory share the term that the query is about."""
    assert shared in analyse(content).frequencies
    assert shared in query_terms(query)


@pytest.mark.parametrize(
    ("content", "query"),
    [("köln", "bonn"), ("v2.4.7", "v3"), ("数据", "据数"), ("नमस्ते", "नमक"), ("parse_config", "user")],
)
def test_other_words_do_not_match(content: str, query: str) -> None:
    """Texts without a word in common share no term."""
    assert not query_terms(query).keys() & analyse(content).frequencies.keys()


@given(MIXED)
def test_every_word_finds_its_memory(text: str) -> None:
    """LEX-01: a word of a text, asked for alone, shares a term with it, whatever stands around it."""
    stored = analyse(text).frequencies
    for word in text.split():
        asked = query_terms(word)
        if any(character.isalnum() for character in word):
            assert not asked or asked.keys() & stored.keys()
        if word.isascii() and any(character.isalnum() for character in word):
            assert asked.keys() & stored.keys()


@given(MIXED)
def test_terms_are_bounded(text: str) -> None:
    """A term has 1 to 64 code points, no white space, no NUL, and a positive count; a length covers the text."""
    terms = analyse(text)
    for term, count in terms.frequencies.items():
        assert 1 <= len(term) <= MAX_TERM
        assert not any(character.isspace() or character == "\0" for character in term)
        assert count >= 1
    assert (terms.length == 0) == (not terms.frequencies)


@given(MIXED)
def test_case_does_not_matter_for_whole_words(text: str) -> None:
    """A text is found by its own words in lower case."""
    lowered = query_terms(text.casefold())
    assert not lowered or lowered.keys() & analyse(text).frequencies.keys()


def test_stop_words_weigh_little_beside_telling_words() -> None:
    """A query of stop words alone is answered in full; beside a telling word they still find; memories keep them."""
    assert query_terms("to be or not to be") == {"to": 2, "be": 2, "or": 1, "not": 1}
    beside = query_terms("where is the zebra")
    assert beside["zebra"] == 1
    assert beside["the"] == STOP_WEIGHT < 0.2
    assert analyse("to be or not to be").frequencies == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_length_counts_words_not_parts() -> None:
    """An identifier of many parts is one word; a URL counts its components; a long token counts more."""
    assert analyse("parse_user_config reads deploy-v2.4.7-hotfix").length == 3
    assert analyse("one two two").length == 3
    assert analyse("db.example.com:5432").length == 2
    assert analyse("数据库").length == 2
    assert analyse("a-" * 10_000 + "a").length > 100


def test_long_tokens_stay_apart() -> None:
    """Two tokens that differ only beyond the 64th code point are different terms, the same on every machine."""
    first, second = "x" * 100 + "a", "x" * 100 + "b"
    assert not query_terms(first).keys() & query_terms(second).keys()
    mark = hashlib.sha256(("y" * 65).encode()).hexdigest()[:16]
    assert query_terms("y" * 65) == {"y" * 47 + "~" + mark: 1}


def test_the_stemmer_in_c_and_in_python_agree() -> None:
    """Stems are those of the pure Python stemmer, whether or not the one in C is installed."""
    words = "running generously dog's news communism universities skies rolled deployment organization"
    stem = cast("Callable[[str], str]", EnglishStemmer().stemWord)  # pyright: ignore[reportUnknownMemberType]
    assert [next(iter(analyse(word).frequencies)) for word in words.split()] == [stem(word) for word in words.split()]


def test_the_fingerprint_names_the_analyser() -> None:
    """What stored terms carry: a name, the version of the rules, and a digest."""
    name, version, mark = ANALYSER.split("-")
    assert (name, version, len(mark)) == ("muniment", "1", 8)


@pytest.mark.parametrize(
    "unit",
    ["\u0301\u0316", "\u093c\u094d", "a.", "a-", "a/", "_", "::", "aB", "a'", "数", "กุ่", "\ufdfa", "👩‍👦", "e\u0301 "],
)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """64,000 characters of anything are analysed at once; a quadratic step would take minutes."""
    text = (unit * 64_000)[:64_000]
    started = time.perf_counter()
    analyse(text)
    assert time.perf_counter() - started < 5
