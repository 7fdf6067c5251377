"""The operations on projects."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from muniment import limits
from muniment.inputs import Cursor, Input, ListLimit, Version
from muniment.models import HistoryPage, Identified, Name, ProjectPage, Receipt
from muniment.operations.operation import Operation

ProjectKey = Annotated[str, StringConstraints(pattern=limits.PROJECT_KEY_PATTERN)]


class ProjectIdentify(Input):
    project: Annotated[ProjectKey, Field(description="the project's key, such as its repository's name")]


class ProjectList(Input):
    limit: ListLimit = limits.LIST_LIMIT_MAX
    cursor: Cursor | None = None


class ProjectShare(Input):
    project: ProjectKey
    group: Name
    access: Annotated[Literal["ro", "rw"], Field(description="ro reads, rw also writes")]
    version: Version | None = None


class ProjectUnshare(Input):
    project: ProjectKey
    group: Name
    version: Version | None = None


class ProjectHistory(Input):
    project: ProjectKey
    limit: ListLimit = limits.LIST_LIMIT_DEFAULT
    cursor: Cursor | None = None


PROJECT_OPERATIONS = (
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
        description="Take a group's access to a project that you own away, from its next call on. It deletes nothing.",
        input=ProjectUnshare,
        output=Receipt,
        destructive=True,
        idempotent=True,
        touches="project",
    ),
    Operation(
        name="project.history",
        title="History of project",
        description="Who registered, shared or unshared a project, and when; with whom only its owner sees. For a "
        "memory use memory.history.",
        input=ProjectHistory,
        output=HistoryPage,
        read_only=True,
        idempotent=True,
        touches="project",
        since="1.2",
    ),
)
