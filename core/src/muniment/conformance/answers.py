"""Reading the answers of operations: times, and the hits of a search."""

from __future__ import annotations

from datetime import datetime

from muniment.conformance.world import Answer

RANKERS = ("meaning", "words", "tags")


def found(page: Answer) -> list[str]:
    """The ids of the memories on a page of hits, in order."""
    return [hit["memory"]["id"] for hit in page["items"]]


def ranker_scores(page: Answer, memory: str) -> dict[str, float]:
    """A memory's score in each ranker that found it; empty where the page does not hold it."""
    for hit in page["items"]:
        if hit["memory"]["id"] == memory:
            return {ranker: hit[ranker]["score"] for ranker in RANKERS if hit.get(ranker)}
    return {}


def moment(text: str) -> datetime:
    """A time in an answer; texts of times do not compare, since a fraction of zero is left out."""
    return datetime.fromisoformat(text)
