"""The seats that plugins fill, and the values that cross them.

A storage holds no rule that another storage must repeat: who may write, what a patch does, how text is cut, analysed
and scored is decided in core before a value gets here. What is left to a storage is atomicity, compare-and-set, the
snapshot of a read and the readable set of an ``Audience``. Authors import everything from this package.
"""

from __future__ import annotations

from muniment.ports.agents import (
    AgentStorage,
    Appended,
    Claim,
    Claimed,
    ClaimedEvent,
    EnvelopeFacts,
    ExchangeAppend,
    ExchangeDraft,
    LostEvent,
    NewEvent,
    SectionChange,
    SectionsWrite,
    StoredSection,
)
from muniment.ports.authentication import (
    METADATA_PATH,
    Authenticator,
    Callers,
    metadata_url,
)
from muniment.ports.backlog import Backlog, BacklogStorage, WaitingStorage
from muniment.ports.reading import (
    Audience,
    Found,
    MemoryFacts,
    Outdated,
    Position,
    ProjectFacts,
    SearchQuery,
    Selector,
)
from muniment.ports.seats import (
    Embedder,
    PluginContext,
    Storage,
    Transport,
)
from muniment.ports.spaces import MaintainedStorage, Progress, RegisteredSpace, SpaceStorage
from muniment.ports.tokens import NewToken, StoredToken, TokenStorage
from muniment.ports.trail import TrailStorage
from muniment.ports.vectors import (
    Passages,
    PassageVector,
    Space,
    Unembedded,
    Vector,
    Vectors,
)
from muniment.ports.writing import (
    Applied,
    AuditDraft,
    Create,
    Index,
    Mutation,
    NewProject,
    Placement,
    ProjectTaken,
    ReceiptClaim,
    ReceiptTaken,
    Remove,
    Restore,
    Revise,
    ShareChange,
    StoredReceipt,
)

__all__ = [
    "METADATA_PATH",
    "AgentStorage",
    "Appended",
    "Applied",
    "Audience",
    "AuditDraft",
    "Authenticator",
    "Backlog",
    "BacklogStorage",
    "Callers",
    "Claim",
    "Claimed",
    "ClaimedEvent",
    "Create",
    "Embedder",
    "EnvelopeFacts",
    "ExchangeAppend",
    "ExchangeDraft",
    "Found",
    "Index",
    "LostEvent",
    "MaintainedStorage",
    "MemoryFacts",
    "Mutation",
    "NewEvent",
    "NewProject",
    "NewToken",
    "Outdated",
    "PassageVector",
    "Passages",
    "Placement",
    "PluginContext",
    "Position",
    "Progress",
    "ProjectFacts",
    "ProjectTaken",
    "ReceiptClaim",
    "ReceiptTaken",
    "RegisteredSpace",
    "Remove",
    "Restore",
    "Revise",
    "SearchQuery",
    "SectionChange",
    "SectionsWrite",
    "Selector",
    "ShareChange",
    "Space",
    "SpaceStorage",
    "Storage",
    "StoredReceipt",
    "StoredSection",
    "StoredToken",
    "TokenStorage",
    "TrailStorage",
    "Transport",
    "Unembedded",
    "Vector",
    "Vectors",
    "WaitingStorage",
    "metadata_url",
]
