"""What is served, and to whom: who sends a request, and what is said to whom it is refused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.responses import Response

from muniment.errors import MunimentError
from muniment.models import CallContext, Principal, ProjectPolicy
from muniment.ports import Callers
from muniment.serving import incidents
from muniment.serving.asgi import Scope
from muniment.serving.doorway import credentials, header, seconds_to_wait
from muniment.serving.requests import noted
from muniment_transport_http import problems
from muniment_transport_http.problems import RefusedByStatus

if TYPE_CHECKING:
    from muniment.engine import Engine

SURFACE = "http"
"""What the audit trail calls this transport."""

CALLER = "muniment.caller"
"""Where a request's scope says who sends it."""


@dataclass(frozen=True)
class Served:
    """What an application serves, and to whom.

    ``resource`` is the URL under which clients reach it. ``ending`` is set when the server is asked to end, which ends
    the streams.
    """

    engine: Engine
    callers: Callers
    resource: str
    projects: ProjectPolicy = ProjectPolicy.CREATE_MISSING
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    async def caller(self, scope: Scope) -> CallContext:
        """Who sends a request. Raises as ``Callers.context`` does."""
        context = await self.callers.context(credentials(scope))
        told = {
            "surface": SURFACE,
            "project_policy": self.projects,
            "request_id": noted(scope).id,
            "traceparent": header(scope, b"traceparent"),
        }
        return context.model_copy(update=told)

    async def proves(self, scope: Scope, principal: Principal) -> bool:
        """Whether the credentials of a request still prove the same principal."""
        try:
            return (await self.callers.proved(credentials(scope))).principal == principal
        except Exception as error:
            self.shown(error, "asking whether a stream may go on", scope)
            return False

    def refused(self, error: Exception, doing: str, scope: Scope) -> Response:
        """The reply to what ``doing`` raised."""
        if isinstance(error, RefusedByStatus):
            noted(scope).refusal = error.refusal
            return problems.response(error.refusal, error.status, error.headers)
        refusal = noted(scope).refusal = self.shown(error, doing, scope)
        headers = self.challenge(refusal)
        if (wait := seconds_to_wait(refusal)) is not None:
            headers["Retry-After"] = str(wait)
        return problems.response(refusal, headers=headers)

    def shown(self, error: Exception, doing: str, scope: Scope) -> MunimentError:
        """What a client is told of an error."""
        return incidents.shown(error, f"{doing}, request {noted(scope).id}")

    def challenge(self, refusal: MunimentError) -> dict[str, str]:
        """The header by which a refusal says how to sign in, where it is a question of that."""
        authenticator = self.callers.authenticator
        challenge = None if authenticator is None else authenticator.challenge(refusal, self.resource)
        return {} if challenge is None else {"WWW-Authenticate": challenge}
