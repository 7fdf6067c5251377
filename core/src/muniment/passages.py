"""How a text is cut into the passages that an embedder takes.

Owns where a text may be cut and which cuts are taken. It counts no tokens and knows no embedder: a caller
splits the text, counts each unit with the embedder's own tokeniser, halves the units that are still too long,
and groups the rest.

Boundaries depend on the text alone. A boundary is taken where its key (how natural the place is, then a
checksum of what stands before it) is the least of all within a distance on either side, as in local-minimum
content-defined chunking (Bjørner, Blass and Gurevich, "Content-Dependent Chunking for Differential
Compression", 2010). So an edit moves only the boundaries near it, and everything further down keeps its
passages. There is no overlap and no ordinal.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

MAX_UNIT: Final = 200
"""The longest unit that `split` returns, in code points."""

_LONG_WORD: Final = 40
_LONG_CLUSTER: Final = 32
_CONTEXT: Final = 8
_NEAR: Final = 0.3
_ZERO_WIDTH_JOINER: Final = "\u200d"

# No alternative can run far and then fail, so that the time stays linear for any text.
_ENDS = re.compile(
    r"""[\n\r\x0b\x0c\x85\u2028\u2029.!?…。！？｡](?:                      # the first character of each, for speed
        (?:(?<=\r)\n?+|(?<=[\n\x0b\x0c\x85\u2028\u2029]))(?:[^\S\n\r\x0b\x0c\x85\u2028\u2029]*+\r?+\n)*+
                                                                # a line end and the blank lines after it
      | (?<=[.!?…])["'”’»)\]]?+(?P<space>[^\S\n\r\x0b\x0c\x85\u2028\u2029][^\S\n\r]*+)  # that after a sentence
      | (?<=[。！？｡])[。！？｡]*+[”’」』）》】]*+                             # the end of a sentence in CJK
    )""",
    re.VERBOSE,
)
_WORD = re.compile(r"\S++\s*+|\s++")
_SENTENCE_END = re.compile(r"[.!?…。！？｡:][\"'”’»)\]」』）》】]?\Z")

_JAMO = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff]")  # vowels and final consonants of a Hangul syllable
_PLAIN_BELOW: Final = "\u0300"


def split(content: str) -> list[str]:
    """The units of a text, in order: lines and sentences, and pieces of the longer ones.

    `''.join(split(content)) == content`; every unit has 1 to `MAX_UNIT` code points, and an empty text has no
    units. White space stays with the unit before it. Pieces are cut after white space where there is any,
    otherwise between characters, and inside a combining or joined sequence only where that alone is longer
    than 32 code points.
    """
    units: list[str] = []
    for segment in _segments(content):
        units.extend([segment] if len(segment) <= MAX_UNIT else _pieces(segment))
    return units


def halves(unit: str) -> tuple[str, str]:
    """Two non-empty parts of a unit that an embedder finds too long.

    Each is at least a quarter of it where possible. The place is chosen as in `split`: after white space, else
    between characters, and by what stands before it, so that an edited unit is cut where it was cut before.

    Raises `ValueError` for a unit of fewer than two code points.
    """
    if len(unit) < 2:
        raise ValueError("A unit of one character cannot be cut; the embedder's limit is too small for it.")
    atoms, keys = _atoms(unit)
    ends = list(accumulate(len(atom) for atom in atoms))[:-1]
    quarter = len(unit) / 4
    central = [(key, end) for key, end in zip(keys, ends, strict=False) if quarter <= end <= 3 * quarter]
    middle = len(unit) // 2
    nearest = min(ends, key=lambda end: abs(end - middle), default=middle)
    place = min(central, default=(0, nearest))[1]
    return unit[:place], unit[place:]


def group(units: Sequence[str], counts: Sequence[int], limit: int) -> list[str]:
    """Passages made of neighbouring units, each with counts that sum to at most `limit`.

    `counts` holds the size of each unit in the embedder's tokens, `limit` what it takes at most. The passages
    joined are the units joined. A text within the limit is one passage; in a longer one boundaries fall
    before headings and after paragraphs where there are any nearby, and passages are between a third and all
    of the limit where the units allow it.

    Raises `ValueError` when `units` and `counts` differ in number, a count is negative, or one exceeds
    `limit`: such a unit is to be halved first.
    """
    if len(units) != len(counts):
        raise ValueError(f"There are {len(units)} units and {len(counts)} counts; each unit needs one.")
    for count in counts:
        if not 0 <= count <= limit:
            raise ValueError(f"A unit of {count} does not fit into the limit of {limit}; halve it first.")
    if sum(counts) <= limit:
        return ["".join(units)] if units else []
    keys = [
        _key(_roughness(before, after), before.encode("utf-8", "surrogatepass")) for before, after in pairwise(units)
    ]
    cuts = [0, *_cuts(keys, counts, limit), len(units)]
    return ["".join(units[start:end]) for start, end in pairwise(cuts) if start < end]


def digest(text: str) -> str:
    """A passage's hash: the first 32 hexadecimal digits of the SHA-256 of its UTF-8 bytes."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def _segments(content: str) -> Iterator[str]:
    ends: list[int] = []
    for match in _ENDS.finditer(content):
        end = match.end()
        if ends and ends[-1] == match.start(match.lastgroup or 0):
            ends.pop()
        if end == len(content) or not _joined(content, 0, end):
            ends.append(end)
    for start, end in pairwise([0, *ends, len(content)]):
        if start < end:
            yield content[start:end]


def _pieces(segment: str) -> list[str]:
    atoms, keys = _atoms(segment)
    cuts = _cuts(keys, list(map(len, atoms)), MAX_UNIT)
    return ["".join(atoms[start:end]) for start, end in pairwise([0, *cuts, len(atoms)])]


def _atoms(segment: str) -> tuple[list[str], list[int]]:
    """The smallest parts of a segment, and the key of the boundary after each: words before characters."""
    words: list[str] = _WORD.findall(segment)
    ends = list(map(zlib.crc32, map(str.encode, words))) if segment.isascii() else list(map(_key_of_text, words))
    if len(words) > 1 and max(map(len, words)) <= _LONG_WORD:
        return words, ends
    atoms: list[str] = []
    keys: list[int] = []
    for word, key in zip(words, ends, strict=True):
        parts = [word] if len(word) <= _LONG_WORD and len(words) > 1 else _clusters(word)
        atoms.extend(parts)
        keys.extend(_keys_inside(word, parts))
        keys.append(key)
    return atoms, keys


def _keys_inside(word: str, parts: list[str]) -> Iterator[int]:
    raw = word.encode("utf-32-le", "surrogatepass")
    for end in accumulate(len(part) for part in parts[:-1]):
        yield _key(1, raw[max(0, 4 * (end - _CONTEXT)) : 4 * end])


def _clusters(word: str) -> list[str]:
    """A word's characters, each with the marks and joined characters that follow it."""
    if word.isalnum() and not _JAMO.search(word):
        return list(word)
    cuts = [0]
    for place, character in enumerate(word):
        if place == 0 or (_PLAIN_BELOW > character != "\n" and word[place - 1] != _ZERO_WIDTH_JOINER):
            joined = False
        else:
            joined = _joined(word, cuts[-1], place) and place - cuts[-1] < _LONG_CLUSTER
        if place and not joined:
            cuts.append(place)
    return [word[start:end] for start, end in pairwise([*cuts, len(word)])]


def _joined(text: str, start: int, place: int) -> bool:
    """Whether the character at a place belongs to the sequence before it, which began at `start`."""
    before, after = text[place - 1], text[place]
    if before == _ZERO_WIDTH_JOINER or after == _ZERO_WIDTH_JOINER:
        return True
    if after < _PLAIN_BELOW:
        return after == "\n" and before == "\r"
    if "\U0001f1e6" <= after <= "\U0001f1ff":
        return place - start == 1 and "\U0001f1e6" <= before <= "\U0001f1ff"
    return (
        unicodedata.category(after)[0] == "M"
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
        or _JAMO.match(after) is not None
    )


def _roughness(before: str, after: str) -> int:
    """How unnatural a boundary between two units is: 0 before a heading, 4 inside a sentence."""
    line = before.rstrip(" \t")
    ends_line = line.endswith(("\n", "\r"))
    if ends_line and after.startswith("#"):
        return 0
    text = line.rstrip()
    if line.count("\n", len(text)) > 1:
        return 1
    finished = _SENTENCE_END.search(text[-2:]) is not None
    return 4 - int(ends_line) - int(finished)


def _key(roughness: int, context: bytes) -> int:
    return roughness << 32 | zlib.crc32(context)


def _key_of_text(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def _cuts(keys: Sequence[int], sizes: Sequence[int], limit: int) -> list[int]:
    """The indices at which to start a new part, none of which is larger than `limit`.

    `keys[i]` belongs to the boundary between `i` and `i + 1`. Boundaries that are the least within `_NEAR` of
    the limit are taken; what lies between two of them and is too large is cut further from its beginning.
    """
    offsets = list(accumulate(sizes, initial=0))
    if offsets[-1] <= limit:
        return []
    near = max(1, int(limit * _NEAR))
    cuts: list[int] = []
    fixed = [0, *_local_minima(keys, offsets, near), len(sizes)]
    for start, end in pairwise(fixed):
        cuts.extend(_forced(keys, offsets, start, end, near, limit))
        cuts.append(end)
    return cuts[:-1]


def _local_minima(keys: Sequence[int], offsets: Sequence[int], near: int) -> list[int]:
    """The boundaries with the least key within `near` on either side, the first of equal ones; near an edge is none."""

    def least(start: int, end: int) -> int:
        among = keys[start - 1 : end - 1]
        return start + among.index(min(among))

    last = len(offsets) - 1
    minima: list[int] = []
    place, stop = bisect_left(offsets, near, 1), bisect_right(offsets, offsets[-1] - near, 1, last)
    while place < stop:
        # Of those that are near each other only the least can be one.
        after = bisect_right(offsets, offsets[place] + near, place, stop)
        found = least(place, after)
        start = bisect_left(offsets, offsets[found] - near, 1)
        if found == least(start, bisect_right(offsets, offsets[found] + near, found, last)):
            minima.append(found)
        place = after
    return minima


def _forced(keys: Sequence[int], offsets: Sequence[int], start: int, end: int, near: int, limit: int) -> Iterator[int]:
    """Boundaries between two, so that no part is larger than ``limit``: of those that leave no part smaller than
    ``near`` the last one with the least key, otherwise the furthest."""
    while offsets[end] - offsets[start] > limit:
        furthest = offsets[start] + limit
        first = bisect_left(offsets, offsets[start] + near, start + 1, end)
        after = bisect_right(offsets, min(furthest, offsets[end] - near), first, end)
        if first < after:
            among = keys[first - 1 : after - 1][::-1]
            best = after - 1 - among.index(min(among))
        else:
            best = max(start + 1, bisect_right(offsets, furthest, start + 1, end) - 1)
        yield best
        start = best
