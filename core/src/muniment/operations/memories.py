"""The operations on memories."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from muniment import limits
from muniment.inputs import Content, Cursor, Id, IdempotencyKey, Input, ListLimit, Text, Version, storable
from muniment.models import HistoryPage, MemoryPage, MemoryRecord, Receipt, SearchPage
from muniment.operations.operation import Operation
from muniment.operations.projects import ProjectKey

Tag = Annotated[str, StringConstraints(pattern=limits.TAG_PATTERN)]
Tags = Annotated[list[Tag], Field(max_length=limits.TAGS_MAX)]
SearchLimit = Annotated[int, Field(ge=1, le=limits.SEARCH_LIMIT_MAX)]
ScopeName = Literal["user", "project"]


class MemoryWrite(Input):
    content: Annotated[Content, Field(description=f"at most {limits.CONTENT_MAX:,} characters")]
    tags: Tags = Field(default_factory=list[str])
    scope: ScopeName | None = None
    project: ProjectKey | None = None
    idempotency_key: IdempotencyKey | None = None


class MemoryGet(Input):
    id: Id


class MemoryList(Input):
    scope: ScopeName | None = None
    project: ProjectKey | None = None
    tags: Annotated[Tags, Field(description="only memories with all of these")] = Field(default_factory=list[str])
    deleted: Annotated[bool, Field(description="list what can be restored instead")] = False
    limit: ListLimit = limits.LIST_LIMIT_DEFAULT
    cursor: Cursor | None = None


class MemorySearch(Input):
    query: Annotated[str, Field(min_length=1, max_length=limits.QUERY_MAX), AfterValidator(storable)]
    scope: ScopeName | None = None
    project: ProjectKey | None = None
    tags: Annotated[Tags, Field(description="only memories with all of these")] = Field(default_factory=list[str])
    limit: SearchLimit = limits.SEARCH_LIMIT_DEFAULT
    cursor: Cursor | None = None
    min_score: float | None = None
    fusion: Literal["weighted", "rrf"] = "weighted"


class MemoryUpdate(Input):
    id: Id
    version: Annotated[Version | None, Field(description="the version you read; a stale one is refused")] = None
    content: Text | None = None
    tags: Tags | None = None
    scope: ScopeName | None = None
    project: ProjectKey | None = None


class MemoryPatch(Input):
    id: Id
    old_string: Annotated[Content, Field(description="a fragment that occurs exactly once")]
    new_string: Text
    version: Version | None = None
    idempotency_key: IdempotencyKey | None = None


class MemoryDelete(Input):
    id: Id
    version: Version | None = None


class MemoryRestore(Input):
    id: Id
    version: Version | None = None


class MemoryHistory(Input):
    id: Id
    limit: ListLimit = limits.LIST_LIMIT_DEFAULT
    cursor: Cursor | None = None


MEMORY_OPERATIONS = (
    Operation(
        name="memory.write",
        title="Write memory",
        description="Store a new memory: a decision, a fact, a document worth finding later. Goes to "
        "`project` if given, else to the default project, else to your own scope. To change an existing "
        "one use patch or update. Retrying? Send the same idempotency_key.",
        input=MemoryWrite,
        output=Receipt,
        touches="caller",
    ),
    Operation(
        name="memory.get",
        title="Read memory",
        description="One memory whole, by id. Read before you edit; its version makes the edit safe. "
        "Hits of search and list carry the content already.",
        input=MemoryGet,
        output=MemoryRecord,
        read_only=True,
        idempotent=True,
    ),
    Operation(
        name="memory.list",
        title="List memories",
        description="Memories with their content, newest first, by scope, project or tags: for an "
        "overview. To find something by meaning or words use search.",
        input=MemoryList,
        output=MemoryPage,
        read_only=True,
        idempotent=True,
        touches="caller",
    ),
    Operation(
        name="memory.search",
        title="Search memories",
        description="Find memories by meaning, by words (identifiers and versions too) and by tags, "
        "best first. Use it before answering from memory, and before writing what may be there already.",
        input=MemorySearch,
        output=SearchPage,
        read_only=True,
        idempotent=True,
        touches="caller",
    ),
    Operation(
        name="memory.update",
        title="Update memory",
        description="Replace a memory's content or tags, or move it to another project or scope; fields "
        "that you leave out stay. For a small edit of a long text use patch.",
        input=MemoryUpdate,
        output=Receipt,
        destructive=True,
    ),
    Operation(
        name="memory.patch",
        title="Patch memory",
        description="Replace one fragment of a memory's content without resending the rest. old_string "
        "must occur exactly once; an empty new_string deletes it.",
        input=MemoryPatch,
        output=Receipt,
        destructive=True,
    ),
    Operation(
        name="memory.delete",
        title="Delete memory",
        description="Remove a whole memory from reads and searches; it can be restored. To remove a "
        "part of its text use patch.",
        input=MemoryDelete,
        output=Receipt,
        destructive=True,
    ),
    Operation(
        name="memory.restore",
        title="Restore memory",
        description="Bring a deleted memory back whole; memory.list with deleted=true finds it. Not for "
        "undoing an edit.",
        input=MemoryRestore,
        output=Receipt,
    ),
    Operation(
        name="memory.history",
        title="History of memory",
        description="Who changed a memory, when, through which surface and what kind of change; never the text.",
        input=MemoryHistory,
        output=HistoryPage,
        read_only=True,
        idempotent=True,
    ),
)
