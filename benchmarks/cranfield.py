"""The Cranfield collection (1,400 abstracts, 225 queries) and the measures of retrieval that are taken on it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents and queries by id, and for each query the ids of its relevant documents."""

    documents: Mapping[str, str]
    queries: Mapping[str, str]
    relevant: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over queries: nDCG@10 with binary gains, recall@10, and the reciprocal rank of the first relevant one."""

    ndcg: float
    recall: float
    mrr: float


def load(folder: Path) -> Collection:
    """Read ``docs.jsonl``, ``queries.jsonl`` and ``qrels.tsv``. A grade of at least 1 is relevant."""
    documents = {str(row["id"]): row["text"] or row["title"] for row in _rows(folder / "docs.jsonl")}
    queries = {str(row["id"]): row["text"] for row in _rows(folder / "queries.jsonl")}
    relevant: dict[str, set[str]] = {query: set() for query in queries}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines():
        query, document, grade = line.split("\t")
        if int(grade) >= 1:
            relevant[query].add(document)
    documents = {name: text for name, text in documents.items() if text.strip()}
    return Collection(documents, queries, {query: frozenset(found) for query, found in relevant.items()})


def quality(orders: Mapping[str, Sequence[str]], relevant: Mapping[str, frozenset[str]]) -> Quality:
    """The measures of these orders of document ids by query, at a cut of 10."""
    per_query = [_one(order, relevant[query]) for query, order in orders.items()]
    count = len(per_query)
    return Quality(*(sum(values) / count for values in zip(*per_query, strict=True)))


def _one(order: Sequence[str], relevant: frozenset[str]) -> tuple[float, float, float]:
    hits = [document in relevant for document in order[:10]]
    gain = sum(hit / math.log2(place + 2) for place, hit in enumerate(hits))
    ideal = sum(1 / math.log2(place + 2) for place in range(min(10, len(relevant))))
    first = next((place for place, hit in enumerate(hits, start=1) if hit), None)
    return gain / ideal, sum(hits) / len(relevant), 1 / first if first else 0.0


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
