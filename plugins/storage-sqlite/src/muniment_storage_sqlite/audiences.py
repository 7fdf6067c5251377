"""Which projects and scopes an audience reads, as SQL that every read begins with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from muniment.models import Access, Share
from muniment.ports import Audience

READABLE: Final = """
    WITH mine (project) AS (
        SELECT id FROM projects WHERE owner = :user
        UNION
        SELECT project FROM shares
        WHERE team IN (SELECT value FROM json_each(:teams)) AND (share = :writable OR NOT :writing)
    ),
    readable (scope) AS (
        SELECT number FROM scopes WHERE user = :user
        UNION ALL
        SELECT number FROM scopes WHERE project IN (SELECT project FROM mine)
    )
"""
"""``mine`` has the ids of the audience's projects, ``readable`` the numbers of its scopes; takes ``parameters``."""

GRANTS: Final = "SELECT share FROM shares WHERE project = :project AND team IN (SELECT value FROM json_each(:teams))"
"""The grants to the audience's groups on a project."""


def parameters(audience: Audience) -> dict[str, Any]:
    """The audience as the parameters of ``READABLE`` and ``GRANTS``."""
    return {
        "user": audience.user,
        "teams": listed(audience.groups),
        "writing": audience.need is Access.WRITE,
        "writable": Share.RW,
    }


def listed(values: Iterable[str | int]) -> str:
    """Values as the one parameter of ``json_each``."""
    return json.dumps(list(values), ensure_ascii=False)
