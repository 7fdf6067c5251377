"""Documents as the records of the ports, and the ports' values as documents; no I/O.

A text of a user's is only ever a value, never the name of a field; within a pipeline it stands under ``$literal``, so
that a dollar or a dot in it means nothing to the server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
from bson.binary import Binary
from bson.objectid import ObjectId

from muniment.lexical import Terms
from muniment.models import AuditRecord, MemoryRecord, PatchEffect, Scope, Share
from muniment.ports import (
    Applied,
    Audience,
    AuditDraft,
    MemoryFacts,
    Passages,
    Placement,
    ProjectFacts,
    RegisteredSpace,
    Space,
    StoredReceipt,
    Vector,
    Vectors,
)
from muniment_storage_mongo.database import Document

_NINE = ("scope", "project_id", "content", "tags", "version", "last_edited_by", "created_at", "updated_at")
MEMORY_FIELDS: Mapping[str, int] = dict.fromkeys(_NINE, 1)
"""The projection of a memory's nine fields; never its terms."""
FACT_FIELDS: Mapping[str, int] = {**MEMORY_FIELDS, "scope_key": 1, "user": 1, "deleted": 1, "embedded_in": 1}
"""The projection of what access and re-embedding are decided from."""
APPLIED_FIELDS: Mapping[str, int] = {"version": 1, "created_at": 1, "updated_at": 1}
EMBEDDED_IN = "embedded_in.spaces"
"""The spaces that a memory's passages are complete in. The list stands in a document of its own, ``embedded_in``, since
an index has a document as one value, and a list as one for each element."""


def literal(value: object) -> Document:
    """A value in a pipeline, whatever characters it holds."""
    return {"$literal": value}


def memory(document: Document) -> MemoryRecord:
    """The nine fields."""
    return MemoryRecord(
        id=document["_id"],
        scope=Scope(document["scope"]),
        project_id=document["project_id"],
        content=document["content"],
        tags=tuple(document["tags"]),
        version=document["version"],
        last_edited_by=document["last_edited_by"],
        created_at=document["created_at"],
        updated_at=document["updated_at"],
    )


def memory_facts(
    document: Document, project: ProjectFacts | None, *, space: str | None, hashes: frozenset[str]
) -> MemoryFacts:
    """A memory with what access is decided from."""
    return MemoryFacts(
        memory=memory(document),
        scope_key=document["scope_key"],
        owner=project.owner if project else document["user"] or "",
        grants=project.grants if project else (),
        deleted=document["deleted"],
        passages=hashes,
        embedded=space in document["embedded_in"]["spaces"],
    )


def project_facts(document: Document, audience: Audience) -> ProjectFacts:
    """A project as the audience may know it; all grants only for its owner."""
    shares = {one["group"]: Share(one["access"]) for one in document["shares"]}
    return ProjectFacts(
        id=document["_id"],
        key=document["key"],
        owner=document["owner"],
        version=document["version"],
        created_at=document["created_at"],
        updated_at=document["updated_at"],
        grants=tuple(share for group, share in shares.items() if group in audience.groups),
        shares=shares if document["owner"] == audience.user else None,
    )


def audit_record(document: Document) -> AuditRecord:
    """An audit entry."""
    patch = document["patch"]
    details = document["details"]
    return AuditRecord(
        id=document["_id"],
        at=document["at"],
        actor=document["actor"],
        agent=document["agent"],
        surface=document["surface"],
        action=document["action"],
        memory_id=document["memory_id"],
        project_id=document["project_id"],
        version=document["version"],
        changed=tuple(document["changed"]),
        scope_key=document["scope_key"],
        moved_to=document["moved_to"],
        patch=PatchEffect(**patch) if patch else None,
        details=json.loads(details) if details else None,
    )


def applied(document: Document) -> Applied:
    """What a mutation left."""
    return Applied(document["version"], document["created_at"], document["updated_at"])


def receipt(document: Document) -> StoredReceipt:
    """A claim as it was stored."""
    return StoredReceipt(document["body_hash"], document["subject"], json.loads(document["receipt"]), document["at"])


def of_audit(draft: AuditDraft, at: datetime | None = None) -> Document:
    """An audit entry; without ``at`` its time is left out, for a pipeline to stamp."""
    return {
        "_id": draft.id,
        **({"at": at} if at else {}),
        "actor": draft.actor,
        "agent": draft.agent,
        "surface": draft.surface,
        "action": draft.action,
        "memory_id": draft.memory_id,
        "project_id": draft.project_id,
        "version": draft.version,
        "changed": list(draft.changed),
        "scope_key": draft.scope_key,
        "moved_to": draft.moved_to,
        "patch": draft.patch.model_dump() if draft.patch else None,
        "details": json.dumps(dict(draft.details), ensure_ascii=False) if draft.details else None,
    }


def of_placement(placement: Placement) -> Document:
    """Where a memory is to live."""
    return {
        "scope_key": placement.scope_key,
        "scope": placement.scope.value,
        "user": placement.user,
        "project_id": placement.project_id,
    }


def of_terms(analyser: str, terms: Terms) -> Document:
    """What a memory is found by. In order, so that equal terms are equal documents."""
    found = sorted(terms.frequencies.items())
    return {"analyser": analyser, "length": terms.length, "terms": [{"t": term, "n": count} for term, count in found]}


NO_TERMS: Mapping[str, Any] = {"analyser": None, "length": 0, "terms": []}
"""What a deleted memory is found by."""


def of_passages(scope_key: str, memory_id: str, passages: Passages | None) -> list[Document]:
    """The new passages, each a document of its own."""
    if passages is None:
        return []
    # A hash that is given twice counts once, as its last vector.
    fresh = {one.hash: one.vector for one in passages.vectors}
    return [
        {
            "scope_key": scope_key,
            "memory": memory_id,
            "space": passages.space,
            "hash": key,
            "vector": of_vector(vector),
        }
        for key, vector in sorted(fresh.items())
    ]


def of_vector(vector: Vector) -> Binary:
    """A vector packed as little-endian float32."""
    return Binary(np.ascontiguousarray(vector, dtype="<f4").tobytes())


def of_space(space: Space, probes: Vectors) -> Document:
    """A space with its probes' vectors, never active yet; its time is left out, for a pipeline to stamp.

    ``registration`` tells it from one with its id that is registered after it was dropped.
    """
    return {
        "_id": space.id,
        "provider": space.provider,
        "model": space.model,
        "dimensions": space.dimensions,
        "pooling": space.pooling,
        "normalised": space.normalised,
        "passage_tokens": space.passage_tokens,
        "probes": [of_vector(probe) for probe in probes],
        "registration": ObjectId(),
        "embedder": None,
        "activated_at": None,
    }


def registered_space(document: Document) -> RegisteredSpace:
    """A space as the registry has it."""
    space = Space(
        id=document["_id"],
        provider=document["provider"],
        model=document["model"],
        dimensions=document["dimensions"],
        pooling=document["pooling"],
        normalised=document["normalised"],
        passage_tokens=document["passage_tokens"],
    )
    return RegisteredSpace(space, document["embedder"], document["registered_at"], document["activated_at"])


def probes(document: Document) -> Vectors:
    """The stored vectors of a space's probe sentences."""
    rows = [np.frombuffer(packed, dtype="<f4") for packed in document["probes"]]
    return np.stack(rows).astype(np.float32) if rows else np.zeros((0, document["dimensions"]), dtype=np.float32)
