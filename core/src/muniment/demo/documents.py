"""The documents of the demonstration: where they come from, and the places in them that a step needs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import muniment
from muniment.errors import ConfigurationError
from muniment.limits import CONTENT_MAX

FILES_MAX = 200
LONG = 12_000
"""Characters from which on a document shows what a patch saves."""
_HANDBOOK_MAX = 60_000
_SKIPPED = frozenset({"node_modules", "site-packages", "__pycache__"})
_IDENTIFIER = re.compile(r"(?<![\w./-])[A-Za-z][A-Za-z0-9]*(?:[_.-][A-Za-z0-9]+)+(?![\w/-])")


@dataclass(frozen=True, slots=True)
class Document:
    """A text with the name that the demonstration calls it by."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Library:
    """The documents, and the names of the files that were left out with the reason."""

    origin: str
    documents: tuple[Document, ...]
    left_out: tuple[str, ...]


def library(directory: Path | None) -> Library:
    """The Markdown files below ``directory``; without one, this project's own. Raises ConfigurationError."""
    if directory is None:
        return _own()
    if not directory.is_dir():
        raise ConfigurationError(f"{directory} is no directory; name one that holds Markdown files.")
    return _read(str(directory), directory, _markdown(directory))


def _own() -> Library:
    """The documents of the checkout that this runs from; installed from wheels, what those carry."""
    root = Path(muniment.__file__).resolve().parents[3]
    if (root / "core" / "pyproject.toml").is_file() and (root / "docs").is_dir():
        places = ("*.md", "docs/**/*.md", "core/*.md", "plugins/*/*.md")
        files = (file for place in places for file in sorted(root.glob(place)))
        return _read("this project's documents", root, files)
    read = (
        Document(f"{one.metadata['Name']}/README.md", str(one.metadata.json.get("description", "")))
        for one in distributions()
        if (one.metadata["Name"] or "").split("-")[0] == "muniment"
    )
    return _chosen("the documents of the installed distributions", sorted(read, key=lambda one: one.name), [])


def _markdown(directory: Path) -> Iterable[Path]:
    for file in sorted(directory.rglob("*.md")):
        parts = file.relative_to(directory).parts
        if not any(part.startswith(".") or part in _SKIPPED for part in parts):
            yield file


def _read(origin: str, root: Path, files: Iterable[Path]) -> Library:
    documents: list[Document] = []
    left_out: list[str] = []
    for file in files:
        name = file.relative_to(root).as_posix()
        if len(documents) == FILES_MAX:
            left_out.append(f"{name} and what follows (more than {FILES_MAX} files)")
            break
        try:
            documents.append(Document(name, file.read_text(encoding="utf-8").replace("\x00", "")))
        except (OSError, UnicodeDecodeError):
            left_out.append(f"{name} (not readable as UTF-8)")
    return _chosen(origin, documents, left_out)


def _chosen(origin: str, documents: Sequence[Document], left_out: list[str]) -> Library:
    fit = [one for one in documents if one.text.strip() and len(one.text) <= CONTENT_MAX]
    left_out += [f"{one.name} (over {CONTENT_MAX:,} characters)" for one in documents if len(one.text) > CONTENT_MAX]
    if sum(len(one.text) for one in fit) < 500:
        raise ConfigurationError(
            f"{origin} holds fewer than 500 characters of Markdown; name a directory that holds more."
        )
    return Library(origin, tuple(fit), tuple(left_out))


def long_document(documents: Sequence[Document]) -> Document:
    """The longest one; if that is not long, a handbook made of all of them."""
    longest = max(documents, key=lambda one: len(one.text))
    if len(longest.text) >= LONG or len(documents) == 1:
        return longest
    joined = "\n\n".join(one.text.strip() for one in documents)[:_HANDBOOK_MAX]
    return Document(f"a handbook of these {len(documents)} documents", joined)


def identifier(documents: Sequence[Document]) -> tuple[str, Document] | None:
    """The longest code identifier that only one of the documents has, and that document."""
    holders: dict[str, list[Document]] = {}
    for document in documents:
        for found in set(_IDENTIFIER.findall(document.text)):
            holders.setdefault(found, []).append(document)
    unique = [
        (found, held[0])
        for found, held in holders.items()
        if len(held) == 1 and 8 <= len(found) <= 40 and sum(found in one.text for one in documents) == 1
    ]
    return max(unique, key=lambda pair: (len(pair[0]), pair[0]), default=None)


def deep_line(text: str) -> str:
    """A line that occurs once, as near to nine tenths of the text as there is one. Raises ConfigurationError."""
    lines = [line for line in text.split("\n") if 20 <= len(line) <= 300 and occurrences(text, line) == 1]
    lines = [line for line in lines if "\r" not in line and not line.startswith(("#", "|", "```", " "))] or lines
    if not lines:
        raise ConfigurationError("No document has a line of its own to patch; name a directory with more text.")
    return min(lines, key=lambda line: abs(text.index(line) - 0.9 * len(text)))


def common_word(text: str) -> tuple[str, int]:
    """The word that occurs most often, and how often, overlaps and parts of words counted as a patch would."""
    words = Counter(re.findall(r"[^\W\d_]{3,}", text))
    word = max(words, key=lambda one: (words[one], one))
    return word, occurrences(text, word)


def occurrences(text: str, fragment: str) -> int:
    """How often ``fragment`` occurs, overlapping occurrences counted."""
    return len(re.findall(f"(?={re.escape(fragment)})", text))
