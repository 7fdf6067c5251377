"""Rows as the records of the ports, and the ports' values as parameters of statements; no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from muniment import access, limits
from muniment.lexical import Terms
from muniment.models import Access, AuditRecord, MemoryRecord, PatchEffect, Scope, Share
from muniment.ports import (
    Applied,
    Audience,
    AuditDraft,
    Index,
    MemoryFacts,
    Mutation,
    NewProject,
    Passages,
    Placement,
    Position,
    ProjectFacts,
    ReceiptClaim,
    RegisteredSpace,
    Space,
)
from muniment_storage_postgres import keys
from muniment_storage_postgres.lists import Texts, VectorList

Row = tuple[Any, ...]
Parameters = dict[str, Any]

MEMORY_COLUMNS = 9
"""A memory's own columns come first in every row that holds one."""


def memory(row: Row) -> MemoryRecord:
    """The nine fields."""
    return MemoryRecord(
        id=row[0],
        scope=Scope(row[1]),
        project_id=row[2],
        content=row[3],
        tags=tuple(row[4]),
        version=row[5],
        last_edited_by=row[6],
        created_at=row[7],
        updated_at=row[8],
    )


def memory_facts(row: Row) -> MemoryFacts:
    """A row of ``load``."""
    scope_key, owner, grants, deleted, hashes, embedded = row[MEMORY_COLUMNS:]
    return MemoryFacts(
        memory=memory(row),
        scope_key=scope_key,
        owner=owner,
        grants=tuple(Share(one) for one in grants),
        deleted=deleted,
        passages=frozenset(hashes),
        embedded=embedded,
    )


def project_facts(row: Row) -> ProjectFacts:
    """A row of the projects' statements."""
    shares: Mapping[str, str] | None = row[7]
    return ProjectFacts(
        id=row[0],
        key=row[1],
        owner=row[2],
        version=row[3],
        created_at=row[4],
        updated_at=row[5],
        grants=tuple(Share(one) for one in row[6]),
        shares=None if shares is None else {group: Share(one) for group, one in shares.items()},
    )


def audit_record(row: Row) -> AuditRecord:
    """A row of ``history`` and of ``scope_trail``."""
    return AuditRecord(
        id=row[0],
        at=row[1],
        actor=row[2],
        agent=row[3],
        surface=row[4],
        action=row[5],
        memory_id=row[6],
        project_id=row[7],
        version=row[8],
        changed=tuple(row[9]),
        scope_key=row[10],
        moved_to=row[11],
        patch=None if row[12] is None else PatchEffect(**row[12]),
        details=row[13],
    )


def applied(row: Row) -> Applied:
    """A row of a mutation's statement."""
    return Applied(version=row[0], created_at=row[1], updated_at=row[2])


def of_audience(audience: Audience) -> Parameters:
    """Who asks."""
    return {
        "user": audience.user,
        "user_key": access.user_key(audience.user),
        "groups": sorted(audience.groups),
        "write": audience.need is Access.WRITE,
    }


def of_position(after: Position | None) -> Parameters:
    """Where a page begins."""
    return {"after_at": after.created_at if after else None, "after_id": after.id if after else None}


def of_audit(draft: AuditDraft) -> Parameters:
    """An audit entry; its time is the statement's."""
    patch = draft.patch
    return {
        "audit_id": draft.id,
        "actor": draft.actor,
        "agent": draft.agent,
        "surface": draft.surface,
        "action": draft.action,
        "audit_memory": draft.memory_id,
        "audit_project": draft.project_id,
        "audit_version": draft.version,
        "audit_changed": Texts(draft.changed),
        "audit_scope_key": draft.scope_key,
        "moved_to": draft.moved_to,
        "patch": None if patch is None else json.dumps(patch.model_dump()),
        "details": json.dumps(dict(draft.details)) if draft.details else None,
    }


def of_claim(claim: ReceiptClaim | None) -> Parameters:
    """An idempotency key, or nulls."""
    return {
        "claim_principal": claim.principal if claim else None,
        "claim_key": claim.key if claim else None,
        "claim_body": claim.body_hash if claim else None,
        "claim_memory": claim.subject if claim else None,
        "claim_receipt": json.dumps(dict(claim.receipt), ensure_ascii=False) if claim else None,
        "kept": limits.IDEMPOTENCY_KEPT,
    }


def of_mutation(mutation: Mutation) -> Parameters:
    """What every mutation has."""
    return {
        "id": mutation.memory_id,
        "editor": mutation.editor,
        **of_audit(mutation.audit),
        **of_claim(mutation.claim),
        **of_new_project(mutation.registers),
    }


def of_placement(placement: Placement) -> Parameters:
    """Where a memory is to live."""
    return {
        "new_scope_key": placement.scope_key,
        "scope_kind": placement.scope.value,
        "user_name": placement.user,
        "project_id": placement.project_id,
    }


def of_new_project(new: NewProject | None) -> Parameters:
    """A project to register with a mutation, and its audit entry; nothing without one."""
    if new is None:
        return {}
    audit = {f"project_{name}": value for name, value in of_audit(new.audit).items()}
    return {"project_key": new.key, "project_owner": new.owner, **audit}


def of_index(index: Index | None) -> Parameters:
    """Search entries; without an index, nulls that leave the stored ones as they are."""
    return {
        **of_terms(index.analyser if index else None, index.terms if index else None),
        **of_passages(index.passages if index else None),
    }


def of_terms(analyser: str | None, terms: Terms | None) -> Parameters:
    """What a memory is found by, or nulls."""
    return {
        "analyser": analyser,
        "length": terms.length if terms else None,
        "terms": keys.of_terms(terms.frequencies) if terms else None,
    }


def of_passages(passages: Passages | None) -> Parameters:
    """Passages of a space: all ``hashes``, of which ``fresh`` come with ``vectors``."""
    fresh = {one.hash: one.vector for one in passages.vectors} if passages else {}
    hashes = sorted(passages.hashes | fresh.keys()) if passages else []
    return {
        "space": passages.space if passages else None,
        "hashes": Texts(hashes),
        "kept_hashes": Texts([one for one in hashes if one not in fresh]),
        "fresh": Texts(list(fresh)),
        "vectors": VectorList(list(fresh.values())),
        "complete": passages is not None and passages.complete,
    }


def registered_space(row: Row) -> RegisteredSpace:
    """A row of ``list_spaces``."""
    return RegisteredSpace(Space(*row[:7]), embedder=row[7], registered_at=row[8], activated_at=row[9])
