"""The operations on API tokens. Making and ending one is no operation: whoever may do that is at the server."""

from __future__ import annotations

from muniment import limits
from muniment.inputs import Cursor, Input, ListLimit
from muniment.models import HistoryPage
from muniment.operations.operation import Operation


class TokenHistory(Input):
    limit: ListLimit = limits.LIST_LIMIT_DEFAULT
    cursor: Cursor | None = None


TOKEN_OPERATIONS = (
    Operation(
        name="token.history",
        title="History of API tokens",
        description="Who made or revoked which API token, when and for whom; never a secret.",
        input=TokenHistory,
        output=HistoryPage,
        read_only=True,
        idempotent=True,
        touches="caller",
        audience="platform",
        since="1.2",
    ),
)
