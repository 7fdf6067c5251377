"""Who may: the rules of access, and the scope keys that they speak of. Deny by default.

A storage selects what an audience reads; whether a caller may do a thing is decided here from the facts that it
returns. Having written a memory grants nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from muniment.errors import AccessDenied, NotFound
from muniment.models import Access, Principal, Scope, Share
from muniment.ports import Audience, MemoryFacts, Placement, ProjectFacts

TOKENS_KEY = "t:"
"""The scope key of what was done with API tokens, which are of no user's and no project's scope."""

_ID = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)
_OF_SHARE = {Share.RO: Access.READ, Share.RW: Access.WRITE}


def user_key(user: str) -> str:
    """The scope key of a user's own memories."""
    return f"u:{user}"


def project_key(project_id: str) -> str:
    """The scope key of a project's memories."""
    return f"p:{project_id}"


def own_placement(user: str) -> Placement:
    """A user's own scope."""
    return Placement(scope_key=user_key(user), scope=Scope.USER, user=user, project_id=None)


def project_placement(project_id: str) -> Placement:
    """A project's scope."""
    return Placement(scope_key=project_key(project_id), scope=Scope.PROJECT, user=None, project_id=project_id)


def audience(principal: Principal, need: Access = Access.READ) -> Audience:
    """Whose reads a principal's are: its user's and its groups'."""
    return Audience(user=principal.user, groups=principal.groups, need=need)


def level(principal: Principal, owner: str, grants: Iterable[Share]) -> Access:
    """The owner writes; otherwise the strongest of the grants to the principal's groups; otherwise nothing."""
    if owner == principal.user:
        return Access.WRITE
    return max((_OF_SHARE[grant] for grant in grants), default=Access.NONE)


def require(principal: Principal, facts: MemoryFacts | ProjectFacts | None, need: Access, thing: str) -> None:
    """Refuse what the principal may not do with ``thing``.

    Raises NotFound where it may not even read it, since what a caller may not read does not exist, and
    AccessDenied where it may read but not write.
    """
    held = Access.NONE if facts is None else level(principal, facts.owner, facts.grants)
    if held is Access.NONE:
        raise NotFound(f"There is no {thing} that you may read; check the id, or list what there is.")
    if held < need:
        raise AccessDenied(f"You may read {thing} but not change it; ask its owner for read-write access.")


def could_be_an_id(name: str) -> bool:
    """Whether a project's name is written as ids are: a write to a project that its caller lost must not make another
    one of that name."""
    return _ID.fullmatch(name) is not None


def choose_project(principal: Principal, found: Iterable[ProjectFacts], name: str) -> ProjectFacts | None:
    """Which of the readable projects the caller means by ``name``.

    The one with this id, which nobody can give to another; else its own by key; else the oldest that is shared with
    it: whoever shares another one of the same key later, however freely, takes no calls away from it.
    """

    def preference(facts: ProjectFacts) -> tuple[bool, bool, datetime, str]:
        return facts.id != name, facts.owner != principal.user, facts.created_at, facts.id

    readable = (facts for facts in found if level(principal, facts.owner, facts.grants) is not Access.NONE)
    return min(readable, key=preference, default=None)
