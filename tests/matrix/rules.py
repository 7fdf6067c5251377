"""The rules of access as this suite states them: who calls, what an operation needs on what, and what comes of it.

Nothing here is the engine's: neither a flag of the registry nor a grant is looked at, so that a rule which is wrong in
the product is not wrong here as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum

OK = "ok"
ADA = "ada/1"
"""The agent that the place is of."""
POD_MATE = "bea/1"
"""An agent in a pod with her."""


class Level(IntEnum):
    """What a caller has of a thing; the greater includes the lesser."""

    NONE = 0
    READ = 1
    WRITE = 2
    OWN = 3


class On(Enum):
    """What a call is about, with the refusal of one who may not read it: the one of what does not exist."""

    SELF = "the caller's own"
    KEY = "the project, by key"
    PROJECT = "the project, by id"
    MEMORY = "a memory in the project"
    OWN_MEMORY = "a memory of the owner's own scope"
    AGENT = "an agent's sections and events"

    @property
    def hidden(self) -> str:
        """The code."""
        return "unknown_project" if self in (On.KEY, On.PROJECT) else "not_found"


class By(Enum):
    """Whose an operation is."""

    ANYBODY = "anybody's"
    AGENT = "an agent's"
    PLATFORM = "the platform's"


@dataclass(frozen=True)
class Who:
    """A caller. ``holds`` is what it has of the project; ``rival`` is whether it owns another one by the same key.

    ``turned_away`` is the refusal of everything, by credentials that let nobody in.
    """

    name: str
    user: str
    groups: tuple[str, ...] = ()
    holds: Level = Level.NONE
    issuer: str = "corp"
    agent: str | None = None
    platform: bool = False
    read_only: bool = False
    rival: bool = False
    turned_away: str | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def spelled(self) -> str:
        """The user, as the product calls it."""
        return f"{self.issuer}:{self.user}"

    def has(self, on: On) -> Level:
        """What it has of a thing."""
        match on:
            case On.SELF:
                return Level.OWN
            case On.KEY:
                return Level.OWN if self.rival else self.holds
            case On.PROJECT | On.MEMORY:
                return self.holds
            case On.OWN_MEMORY:
                return Level.OWN if self.holds is Level.OWN else Level.NONE
            case On.AGENT:
                return Level.OWN if self.agent == ADA or self.platform else Level.NONE


@dataclass(frozen=True)
class Rule:
    """What an operation does, whose it is, and what it needs on what.

    ``names_new`` is whether it may name a project that does not exist, where the surface creates such: by a key, and by
    nothing that is written as an id.
    """

    on: On
    needs: Level = Level.NONE
    changes: bool = False
    by: By = By.ANYBODY
    names_new: bool = False


def refused_unseen(rule: Rule, who: Who) -> str | None:
    """The refusal that needs no look at the thing, if there is one."""
    if who.turned_away is not None:
        return who.turned_away
    if rule.changes and who.read_only:
        return "access_denied"
    if (rule.by is By.AGENT and who.agent is None) or (rule.by is By.PLATFORM and not who.platform):
        return "access_denied"
    return None


def outcome(rule: Rule, who: Who, *, creates_missing: bool) -> str:
    """``ok``, or the code of the refusal."""
    unseen = refused_unseen(rule, who)
    if unseen is not None:
        return unseen
    if who.has(rule.on) >= rule.needs or (creates_missing and is_hidden(rule, who) and rule.names_new):
        return OK
    return rule.on.hidden if is_hidden(rule, who) else "access_denied"


def is_hidden(rule: Rule, who: Who) -> bool:
    """Whether what the call needs does not exist for this caller."""
    return who.has(rule.on) is Level.NONE and rule.needs is not Level.NONE


ANONYMOUS = Who("anonymous", "alice", turned_away="unauthenticated")

CALLERS = (
    Who("owner", "alice", holds=Level.OWN),
    Who("rw", "walter", ("writers",), Level.WRITE),
    Who("ro", "rita", ("readers",), Level.READ),
    Who("ro and rw", "bert", ("readers", "writers"), Level.WRITE),
    Who("stranger", "mallory"),
    Who("revoked", "rudi", ("former",)),
    Who("other tenant", "alice", ("writers", "readers"), issuer="globex", rival=True),
    Who("agent", "keeper", agent=ADA),
    Who("agent of the owner", "alice", holds=Level.OWN, agent=ADA),
    Who("another agent", "keeper", agent="ada/2"),
    Who("agent of the same pod", "mate", agent=POD_MATE),
    Who("platform", "runtime", platform=True),
    Who("read-only owner", "alice", holds=Level.OWN, read_only=True),
    Who("read-only rw", "walter", ("writers",), Level.WRITE, read_only=True),
    Who("read-only stranger", "mallory", read_only=True),
    Who("read-only agent", "keeper", agent=ADA, read_only=True),
    Who("read-only platform", "runtime", platform=True, read_only=True),
    ANONYMOUS,
)
"""What each one holds is said beside its groups, and not found by them: that is what is judged."""


@dataclass(frozen=True)
class Text:
    """A text that is stored, and who may be shown it."""

    text: str
    readers: Callable[[Who], bool]


OWNER = Who("owner", "alice").spelled
SILENT = "corp:silent"
"""A group with a grant of which only the owner is told."""

LIVE = Text("The deeds lie in the harbour.", lambda who: who.holds >= Level.READ)
GONE = Text("The burnt deeds lay in the harbour.", lambda who: who.holds >= Level.WRITE)
OWN = Text("Alice keeps her key to the harbour.", lambda who: who.holds is Level.OWN)
OWN_GONE = Text("Alice lost a key to the harbour.", lambda who: who.holds is Level.OWN)
OWNED = Text(OWNER, lambda who: who.holds >= Level.READ)
SHARED = Text(SILENT, lambda who: who.holds is Level.OWN)
PUBLIC = Text("Ada is kind.", lambda who: who.agent is not None)
POD = Text("Ada is on duty.", lambda who: who.agent in (ADA, POD_MATE))
PRIVATE = Text("Ada has doubts.", lambda who: who.agent == ADA)
TAKEAWAY = Text("Mend the pier", lambda who: who.agent == ADA)
WAITING = Text("A ship waits.", lambda who: who.agent == ADA)
DEAD = Text("A ship sank.", lambda who: who.platform)
TOKEN = Text("corp:warden", lambda who: who.platform)
TEXTS = (LIVE, GONE, OWN, OWN_GONE, OWNED, SHARED, PUBLIC, POD, PRIVATE, TAKEAWAY, WAITING, DEAD, TOKEN)
