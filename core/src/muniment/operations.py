"""The registry: each operation's name, input, output, flags and description. Transports are generated from it.

An input model states shape, type and field limits; what needs the stored state is the engine's. Inputs are
strict: no coercion, and an unknown field is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from muniment import limits
from muniment.errors import InvalidInput, NotFound
from muniment.models import (
    HistoryPage,
    Identified,
    MemoryPage,
    MemoryRecord,
    ProjectPage,
    Receipt,
    SearchPage,
)


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("holds a NUL character; remove it")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("holds a lone surrogate; send valid Unicode")
    return text


Text = Annotated[str, AfterValidator(_storable)]
Content = Annotated[str, Field(min_length=1), AfterValidator(_storable)]
Tag = Annotated[str, StringConstraints(pattern=limits.TAG_PATTERN)]
Tags = Annotated[list[Tag], Field(max_length=limits.TAGS_MAX)]
Id = Annotated[str, Field(min_length=1, max_length=limits.ID_MAX), AfterValidator(_storable)]
ProjectKey = Annotated[str, StringConstraints(pattern=limits.PROJECT_KEY_PATTERN)]
Group = Annotated[str, Field(min_length=1, max_length=limits.NAME_MAX), AfterValidator(_storable)]
Version = Annotated[int, Field(ge=1, le=2**31 - 1)]
Cursor = Annotated[
    str,
    Field(min_length=1, max_length=limits.CURSOR_MAX, description="the last reply's, to continue it"),
    AfterValidator(_storable),
]
IdempotencyKey = Annotated[str, Field(min_length=1, max_length=limits.IDEMPOTENCY_KEY_MAX), AfterValidator(_storable)]
ListLimit = Annotated[int, Field(ge=1, le=limits.LIST_LIMIT_MAX)]
SearchLimit = Annotated[int, Field(ge=1, le=limits.SEARCH_LIMIT_MAX)]
ScopeName = Literal["user", "project"]


class Input(BaseModel):
    """Base of every operation's input."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ProjectIdentify(Input):
    project: Annotated[ProjectKey, Field(description="the project's key, such as its repository's name")]


class ProjectList(Input):
    limit: ListLimit = limits.LIST_LIMIT_MAX
    cursor: Cursor | None = None


class ProjectShare(Input):
    project: ProjectKey
    group: Group
    access: Annotated[Literal["ro", "rw"], Field(description="ro reads, rw also writes")]
    version: Version | None = None


class ProjectUnshare(Input):
    project: ProjectKey
    group: Group
    version: Version | None = None


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
    query: Annotated[str, Field(min_length=1, max_length=limits.QUERY_MAX), AfterValidator(_storable)]
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


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. ``touches`` says what its access is judged by: a memory, a project or the caller alone."""

    name: str
    title: str
    description: str
    input: type[Input]
    output: type[BaseModel]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    touches: Literal["memory", "project", "caller"] = "memory"

    def parse(self, payload: Mapping[str, Any]) -> Input:
        """The validated input. Raises InvalidInput, naming the first field that is wrong and its limit."""
        try:
            return self.input.model_validate(dict(payload))
        except ValidationError as error:
            raise _refusal(error) from None


def _refusal(error: ValidationError) -> InvalidInput:
    """The first problem as a refusal that never repeats the input's value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(str(part)[:100] for part in first["loc"]) or "input"
    problem = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        problem = "no such field; remove it, or check its spelling"
    return InvalidInput(field, problem)


OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            name="project.identify",
            title="Identify project",
            description="Register a project by key, or find it. Call once before writing to a project that "
            "does not exist yet; no other call creates one.",
            input=ProjectIdentify,
            output=Identified,
            idempotent=True,
            touches="project",
        ),
        Operation(
            name="project.list",
            title="List projects",
            description="The projects that you own or that are shared with your groups. Use it to find a "
            "key; to find memories use search.",
            input=ProjectList,
            output=ProjectPage,
            read_only=True,
            idempotent=True,
            touches="caller",
        ),
        Operation(
            name="project.share",
            title="Share project",
            description="Let a group read (ro) or also write (rw) a project that you own. Not for single memories.",
            input=ProjectShare,
            output=Receipt,
            idempotent=True,
            touches="project",
        ),
        Operation(
            name="project.unshare",
            title="Unshare project",
            description="Take a group's access to a project that you own away, from its next call on. It "
            "deletes nothing.",
            input=ProjectUnshare,
            output=Receipt,
            destructive=True,
            idempotent=True,
            touches="project",
        ),
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
}


def find(name: str) -> Operation:
    """The operation called ``name``. Raises NotFound."""
    operation = OPERATIONS.get(name)
    if operation is None:
        raise NotFound(f"There is no operation {name[:100]!r}; the operations are {', '.join(OPERATIONS)}.")
    return operation
