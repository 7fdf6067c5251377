"""Who may."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from muniment import access
from muniment.errors import AccessDenied, NotFound
from muniment.models import Access, Principal, Share
from muniment.ports import ProjectFacts

ANN = Principal(user="ann", groups=frozenset({"team"}))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def project(name: str, owner: str, *grants: Share, key: str = "key", days: int = 0) -> ProjectFacts:
    at = NOW + timedelta(days=days)
    return ProjectFacts(id=name, key=key, owner=owner, version=1, created_at=at, updated_at=at, grants=grants)


def test_level_is_the_strongest_grant_and_nothing_by_default() -> None:
    """Owner writes; of several grants the strongest counts; none is none."""
    assert access.level(ANN, "ann", ()) is Access.WRITE
    assert access.level(ANN, "bob", ()) is Access.NONE
    assert access.level(ANN, "bob", (Share.RO,)) is Access.READ
    assert access.level(ANN, "bob", (Share.RO, Share.RW)) is Access.WRITE
    assert access.level(ANN, "Ann", ()) is Access.NONE


def test_require_hides_what_is_not_readable() -> None:
    """Not readable and not there are the same refusal; readable but not writable is another."""
    with pytest.raises(NotFound) as hidden:
        access.require(ANN, project("1", "bob"), Access.READ, "project key")
    with pytest.raises(NotFound) as absent:
        access.require(ANN, None, Access.READ, "project key")
    assert hidden.value.body() == absent.value.body()
    with pytest.raises(AccessDenied):
        access.require(ANN, project("1", "bob", Share.RO), Access.WRITE, "project key")
    access.require(ANN, project("1", "bob", Share.RW), Access.WRITE, "project key")


def test_choosing_among_projects_with_one_key() -> None:
    """Own first, then the oldest, however strong a later one's grant is; unreadable ones do not count."""
    own = project("own", "ann", days=9)
    strong = project("strong", "carl", Share.RW, days=5)
    old = project("old", "bob", Share.RO)
    hidden = project("hidden", "bob")
    everything = [own, strong, old, hidden]
    assert access.choose_project(ANN, everything, "key") is own
    assert access.choose_project(ANN, everything[1:], "key") is old
    assert access.choose_project(ANN, [strong, hidden], "key") is strong
    assert access.choose_project(ANN, [hidden], "key") is None


def test_an_id_names_its_own_project_alone() -> None:
    """A key is whatever its owner likes, also the id of another's project; that takes nobody's calls away from it."""
    meant = project("7d4f", "bob", Share.RO, days=9)
    impostor = project("impostor", "carl", Share.RW, key="7d4f")
    own = project("own", "ann", key="7d4f")
    assert access.choose_project(ANN, [impostor, own, meant], "7d4f") is meant
    assert access.choose_project(ANN, [impostor, own], "7d4f") is own
