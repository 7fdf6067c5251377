"""What a verified token's claims make of its holder, and how identities of several issuers stay apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muniment.authentication import claims
from muniment.authentication.settings import IssuerSettings
from muniment.errors import AccessDenied, Unauthenticated
from muniment.models import Agent, Principal


def principal(said: dict[str, Any], name: str = "corp", **settings: Any) -> Principal:
    """Who the claims are, by an issuer with these settings."""
    given = {"issuer": "https://login.example.com", "audience": "memory", **settings}
    return claims.principal(name, IssuerSettings.model_validate(given), {"sub": "alice", **said})


def test_the_same_names_of_another_issuer_are_others() -> None:
    """Neither a user nor a group of one issuer is ever one of another, whatever the names are."""
    names = ("alice", "b:alice", ":", "corp:alice")
    found = [
        principal({"sub": name, "groups": [name]}, issuer, groups_claim="groups")
        for issuer in ("a", "a-b", "b")
        for name in names
    ]

    assert len({one.user for one in found}) == len(found)
    assert len({one.groups for one in found}) == len(found)


def test_names_are_kept_as_they_are() -> None:
    """Upper and lower case, spaces and other scripts are part of a name."""
    found = principal({"sub": " Алиса Å ", "groups": ["Eng Team", "eng team"]}, groups_claim="groups")

    assert found.user == "corp: Алиса Å "
    assert found.groups == {"corp:Eng Team", "corp:eng team"}


def test_a_claim_by_its_path() -> None:
    """A claim within another one, by the names on the way; a name with dots is one name."""
    nested = {"realm_access": {"roles": ["eng"]}, "https://example.com/groups": ["ops"], "oid": "7"}

    assert principal(nested, groups_claim=["realm_access", "roles"]).groups == {"corp:eng"}
    assert principal(nested, groups_claim="https://example.com/groups").groups == {"corp:ops"}
    assert principal(nested, groups_claim=["realm_access", "roles", "x"]).groups == frozenset()
    assert principal(nested, groups_claim="realm_access.roles").groups == frozenset()
    assert principal(nested, subject_claim="oid").user == "corp:7"


def test_groups_that_nobody_mapped_are_none() -> None:
    """Without a mapping, and in a token without the claim, there are no groups."""
    assert principal({"groups": ["eng"]}).groups == frozenset()
    assert principal({}, groups_claim="groups").groups == frozenset()
    assert principal({"groups": None}, groups_claim="groups").groups == frozenset()


@pytest.mark.parametrize("groups", ["eng", 7, {"eng": True}, ["eng", 7]])
def test_groups_that_are_no_list_of_names_are_refused(groups: object) -> None:
    """A mapping that is wrong is said, and gives nobody part of what it means."""
    with pytest.raises(Unauthenticated, match="groups"):
        principal({"groups": groups}, groups_claim="groups")


def test_a_group_that_no_grant_can_name_is_left_out() -> None:
    """A blank one, one with a line break, one that is too long: the others count."""
    groups = ["", " ", "a\nb", "a" * 196, "eng"]
    assert principal({"groups": groups}, groups_claim="groups").groups == {"corp:eng"}


@pytest.mark.parametrize("subject", [7, True, ["alice"], {"id": 1}, ""])
def test_a_subject_is_a_text(subject: object) -> None:
    """Nothing else is made into one: 7 and "7" would be the same user."""
    with pytest.raises(Unauthenticated, match="claim sub"):
        principal({"sub": subject})


SCOPES = {"read_scope": "m:read", "write_scope": "m:write"}


@pytest.mark.parametrize(
    ("scope", "settings", "read_only"),
    [
        ("", {}, False),
        ("m:write", SCOPES, False),
        ("openid m:read", SCOPES, True),
        ("m:read m:write", SCOPES, False),
        ("", {"write_scope": "m:write"}, True),
        ("m:write", {"write_scope": "m:write"}, False),
        (["m:write"], SCOPES, False),
        ("m:writer", {"write_scope": "m:write"}, True),
    ],
)
def test_scopes_that_allow_to_write(scope: object, settings: dict[str, Any], read_only: bool) -> None:
    """Where one is configured, only a token that has it, whole, may write; writing includes reading."""
    assert principal({"scope": scope}, **settings).read_only is read_only


def test_what_lets_in_and_what_is_said_of_it_are_one() -> None:
    """A token that may write may read, without read_scope; the setting and the documentation say so."""
    described = IssuerSettings.model_fields["read_scope"].description
    assert described == "the scope by which one may read; write_scope includes it"
    assert principal({"scope": "m:write"}, **SCOPES) == Principal(user="corp:alice")
    rows = (Path(__file__).parents[2] / "docs" / "authentication.md").read_text("utf-8").splitlines()
    (row,) = [line for line in rows if line.startswith("| `read_scope` |")]
    assert described.replace("write_scope", "`write_scope`") in row


def test_a_reader_is_known_by_the_scope_that_it_lacks() -> None:
    """That of its own issuer, and only where it lacks it."""
    assert principal({"scope": "m:read"}, **SCOPES).write_scope == "m:write"
    assert principal({"scope": "m:read m:write"}, **SCOPES).write_scope is None


@pytest.mark.parametrize("scope", ["", "openid", "M:READ", "m:read,m:write", None, 7, ["m:read m:write"]])
def test_a_token_without_a_scope_that_lets_in(scope: object) -> None:
    """It proves who calls and lets nobody in: access_denied, with the scopes to ask for."""
    with pytest.raises(AccessDenied) as refusal:
        principal({"scope": scope}, **SCOPES)
    assert refusal.value.details == {"error": "insufficient_scope", "scope": "m:read m:write"}


def test_agents_and_the_platform_come_from_the_mapping_alone() -> None:
    """A claim, or a scope, that is not mapped says nothing."""
    said = {"agent": "ada/x/1", "scope": "platform agent=ada/1"}

    assert principal(said) == Principal(user="corp:alice")
    assert principal(said, agent_claim="agent").agent == Agent(name="ada/x", instance="1")
    assert principal({"scope": ""}, agent_claim="agent", platform_scope="platform") == Principal(user="corp:alice")
    assert principal(said, platform_scope="platform").platform


@pytest.mark.parametrize("agent", ["ada", "", "/1", "ada/", "ada lovelace/1", 7, ["ada/1"]])
def test_an_agent_that_is_none_is_refused(agent: object) -> None:
    """An agent's caller who were taken for a person could read and write as one."""
    with pytest.raises(Unauthenticated, match="claim agent must be NAME/INSTANCE"):
        principal({"agent": agent}, agent_claim="agent")


def test_nobody_is_an_agent_and_the_platform() -> None:
    """Such a caller could write what only the platform records about itself."""
    with pytest.raises(Unauthenticated, match="platform"):
        principal({"agent": "ada/1", "scope": "platform"}, agent_claim="agent", platform_scope="platform")
