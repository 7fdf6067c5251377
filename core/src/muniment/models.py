"""The records that the product speaks of: frozen values, no behaviour beyond their shape.

``MemoryRecord`` is exactly what any read returns of a memory. Rows, documents and wire formats are the plugins'.
"""

from __future__ import annotations

import unicodedata
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from muniment import limits


class Record(BaseModel):
    """Base of every record: frozen, and no field that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Access(IntEnum):
    """What a caller may do with a scope; the greater value includes the lesser."""

    NONE = 0
    READ = 1
    WRITE = 2


class Share(StrEnum):
    """A grant to a group, as people write it."""

    RO = "ro"
    RW = "rw"


class Scope(StrEnum):
    """Whose a memory is: its user's alone, or a project's."""

    USER = "user"
    PROJECT = "project"


class ProjectPolicy(StrEnum):
    """What a surface does with an unknown project key in a write."""

    REQUIRE_EXISTING = "require-existing"
    CREATE_MISSING = "create-missing"


class EmbeddingState(StrEnum):
    """Whether a memory's passages have their vectors: all, not yet, or no embedder is configured."""

    READY = "ready"
    PENDING = "pending"
    OFF = "off"


def refuse_control_characters(text: str) -> None:
    """Raises ValueError for a text that no line of a terminal or a log can hold."""
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in text):
        raise ValueError("holds a control character or a line break; remove it")


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank; give a name")
    refuse_control_characters(text)
    return text


Name = Annotated[str, StringConstraints(min_length=1, max_length=limits.NAME_MAX), AfterValidator(_name)]
"""A user's or a group's name. Names are compared whole and kept as they are."""
AgentId = Annotated[str, StringConstraints(pattern=limits.AGENT_NAME_PATTERN)]


class Agent(Record):
    """One running instance of an agent."""

    name: AgentId
    instance: AgentId

    @classmethod
    def parse(cls, text: object) -> Agent:
        """The agent of ``NAME/INSTANCE``. A name may hold slashes; the last one begins the instance.

        Raises ValueError, with the end of a sentence that begins with what the text is.
        """
        name, _, instance = text.rpartition("/") if isinstance(text, str) else ("", "", "")
        try:
            return cls(name=name, instance=instance)
        except ValidationError:
            raise ValueError(
                "must be NAME/INSTANCE, such as ada/1, each 1 to 64 letters, digits or . _ : @ / + - characters"
            ) from None

    if TYPE_CHECKING:  # a frozen model is hashable; type checkers do not know

        def __hash__(self) -> int: ...


WRITE_SCOPE: Final = "write"
"""The scope of an API token that may write."""


class Principal(Record):
    """Who calls, as the authenticator proved it; never taken from an operation's input.

    ``read_only`` says that the credentials allow no operation that changes something, whatever its user may do;
    ``write_scope`` is then the scope to ask their issuer for, where there is one by which they might.
    """

    user: Name
    groups: frozenset[Name] = frozenset()
    agent: Agent | None = None
    platform: bool = False
    read_only: bool = False
    write_scope: str | None = None

    @property
    def caller(self) -> tuple[str, Agent | None]:
        """As whose a request counts: a user's, or one agent instance's of a user."""
        return self.user, self.agent


class CallContext(Record):
    """What a surface knows of a call besides its input.

    ``default_project`` is the key that a write without a scope goes to; None means the caller's own scope.
    ``request_id`` is what the surface calls the request, for the log; ``traceparent`` is the span that the client says
    it belongs to, as W3C Trace Context has it.
    """

    principal: Principal
    surface: str = "engine"
    project_policy: ProjectPolicy = ProjectPolicy.REQUIRE_EXISTING
    default_project: str | None = None
    request_id: str | None = None
    traceparent: str | None = None


class MemoryRecord(Record):
    """A memory: these nine fields are all that any read ever returns."""

    id: str
    scope: Scope
    project_id: str | None
    content: str
    tags: tuple[str, ...]
    version: int
    last_edited_by: str
    created_at: datetime
    updated_at: datetime


class ProjectRecord(Record):
    """A project as its reader sees it. ``access`` is the reader's own; ``shares`` only the owner sees."""

    id: str
    key: str
    owner: str
    version: int
    access: Share
    created_at: datetime
    updated_at: datetime
    shares: dict[str, Share] | None = None


class PatchEffect(Record):
    """What a patch did, in characters of the content."""

    offset: int
    removed: int
    added: int


class AuditRecord(Record):
    """One applied mutation: who did what through which surface. It never holds content.

    ``scope_key`` is where the thing was before, ``moved_to`` where a move put it.
    """

    id: str
    at: datetime
    actor: str
    agent: str | None
    surface: str
    action: str
    memory_id: str | None
    project_id: str | None
    version: int
    changed: tuple[str, ...]
    scope_key: str
    moved_to: str | None = None
    patch: PatchEffect | None = None
    details: dict[str, Any] | None = None


class Receipt(Record):
    """What a mutation returns. ``project_created`` says that it registered the project that it names."""

    id: str
    version: int
    updated_at: datetime
    action: str
    embedding: EmbeddingState | None = None
    content_length: int | None = None
    delta: int | None = None
    project_id: str | None = None
    project_created: bool = False


class RankerHit(Record):
    """Where one ranker put a memory.

    ``rank`` starts at 1 and is exact within the ranker's pool; pool + 1 says that another ranker brought the memory.
    ``score`` is the ranker's own: a cosine, a raw BM25 score, or a tag overlap.
    """

    rank: int
    score: float


class Hit(Record):
    """One search result: a memory, its score, and its place in each ranker that found it."""

    memory: MemoryRecord
    score: float
    meaning: RankerHit | None = None
    words: RankerHit | None = None
    tags: RankerHit | None = None


class Page(Record):
    """One page. ``cut`` says that it ended early because its content reached the limit; ``cursor`` continues."""

    cursor: str | None = None
    cut: bool = False


class MemoryPage(Page):
    items: tuple[MemoryRecord, ...]


class SearchPage(Page):
    """``degraded`` says in words why a ranker was left out; None when all rankers answered."""

    items: tuple[Hit, ...]
    degraded: str | None = None


class ProjectPage(Page):
    items: tuple[ProjectRecord, ...]


class HistoryPage(Page):
    items: tuple[AuditRecord, ...]


class Identified(Record):
    """The answer of project.identify: the project, and whether this call registered it."""

    project: ProjectRecord
    created: bool
