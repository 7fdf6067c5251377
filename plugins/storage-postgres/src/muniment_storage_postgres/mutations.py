"""A mutation as its statement and parameters, and what an answer without a row means."""

from __future__ import annotations

import psycopg
from psycopg.errors import ForeignKeyViolation, UniqueViolation

from muniment.errors import Internal, VersionConflict
from muniment.ports import Applied, Create, Mutation, ProjectTaken, ReceiptTaken, Remove, Restore, Revise
from muniment.ports.refusals import memory_kept_changing, no_memory, no_project, no_space
from muniment_storage_postgres import records
from muniment_storage_postgres.database import Database
from muniment_storage_postgres.lists import Texts, VectorList
from muniment_storage_postgres.records import Parameters, Row

_ATTEMPTS = 8


async def apply(database: Database, mutation: Mutation, *, scope: int | None) -> Applied:
    """Apply a mutation; ``scope`` is the number of the memory's scope.

    Raises VersionConflict, NotFound, ReceiptTaken, ProjectTaken, and ConfigurationError for a space that is not
    registered. It is repeated only where it provably changed nothing although the version is the expected one: vectors
    of the background came in between, or the memory's scope is not the one that the audit entry names.
    """
    statement, parameters = _prepared(mutation)
    if mutation.registers is not None:
        statement += "_registering"
    if mutation.claim is not None:
        statement += "_once"
    parameters["scope"] = scope
    for _ in range(_ATTEMPTS):
        try:
            row = await database.change(statement, parameters)
        except psycopg.IntegrityError as error:
            raise _refusal(error, mutation) from error
        if row is not None:
            await _completed(database, parameters, row)
            return records.applied(row)
        parameters["scope"] = await _scope_now(database, mutation, parameters)
    raise memory_kept_changing(mutation.memory_id)


async def _completed(database: Database, parameters: Parameters, row: Row) -> None:
    """Count the memory as complete where the statement could not tell that what it kept was there."""
    version, *_, complete = row
    if parameters.get("complete") and not complete:
        kept: Parameters = {"expected": version, "kept_hashes": parameters["hashes"]}
        await database.change("store_passages", {**parameters, **kept, "fresh": Texts(()), "vectors": VectorList(())})


def _prepared(mutation: Mutation) -> tuple[str, Parameters]:
    parameters = records.of_mutation(mutation)
    match mutation:
        case Create():
            content = {"content": mutation.content, "tags": list(mutation.tags)}
            entries = records.of_index(mutation.index)
            return "create", {**parameters, **content, **entries, **records.of_placement(mutation.placement)}
        case Revise():
            parameters["content"] = mutation.content
            parameters["tags"] = None if mutation.tags is None else list(mutation.tags)
            parameters.update(records.of_index(mutation.index), expected=mutation.expected_version)
            if mutation.placement and mutation.placement.scope_key != mutation.audit.scope_key:
                return "move", {**parameters, **records.of_placement(mutation.placement)}
            return "label" if mutation.index is None else "edit", parameters
        case Remove():
            return "remove", {**parameters, "space": None, "expected": mutation.expected_version}
        case Restore():
            parameters.update(records.of_index(mutation.index), expected=mutation.expected_version)
            return "restore", parameters
        case _:
            raise TypeError(f"unknown mutation {type(mutation).__name__}")


async def _scope_now(database: Database, mutation: Mutation, parameters: Parameters) -> int:
    """The number of the memory's scope, where the mutation may be repeated. Raises what stood in its way."""
    row = await database.row("standing", parameters)
    version, deleted, scope, taken, spaced = row or (None, None, 0, False, True)
    if taken:
        raise ReceiptTaken
    if not spaced:
        raise no_space(parameters["space"])
    wanted = isinstance(mutation, Restore)
    if version is None or deleted is not wanted:
        raise no_memory(mutation.memory_id, deleted=wanted)
    if version != parameters["expected"]:
        raise VersionConflict(version)
    return scope


def _refusal(error: psycopg.IntegrityError, mutation: Mutation) -> Exception:
    constraint = error.diag.constraint_name
    if isinstance(error, UniqueViolation) and constraint == "receipt_pkey":
        return ReceiptTaken()
    if isinstance(error, UniqueViolation) and constraint == "project_owner_key":
        return ProjectTaken()
    placement = mutation.placement if isinstance(mutation, (Create, Revise)) else None
    if isinstance(error, ForeignKeyViolation) and placement and placement.project_id:
        return no_project(placement.project_id)
    return Internal(f"The mutation of memory {mutation.memory_id} breaks the constraint {constraint} of the schema.")
