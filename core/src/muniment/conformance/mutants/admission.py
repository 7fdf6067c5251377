"""Mutants made for TRA-05: who is let in over a network who should not be, or as somebody else."""

from __future__ import annotations

import asyncio

from muniment.conformance.mutants.mutant import Mutants
from muniment.conformance.reference_transport import ReferenceTransport
from muniment.errors import IssuerUnavailable, NotFound, Unauthenticated
from muniment.models import CallContext
from muniment.ports import Callers

MUTANTS = Mutants()


@MUTANTS("local caller without credentials", made_for="TRA-05", fails="TRA-05")
class LetsTheLocalIn(ReferenceTransport):
    """A request without credentials is of the caller that the configuration names."""

    async def identified(self, callers: Callers, authorization: str | None) -> CallContext:
        """Local where nothing was sent."""
        return callers.local if authorization is None else await super().identified(callers, authorization)


@MUTANTS("local caller's rights added", made_for="TRA-05", fails="TRA-05")
class AddsTheLocal(ReferenceTransport):
    """Who is proved has the local caller's groups and default project besides."""

    async def identified(self, callers: Callers, authorization: str | None) -> CallContext:
        """Both."""
        proved = (await super().identified(callers, authorization)).principal
        both = proved.model_copy(update={"groups": proved.groups | callers.local.principal.groups})
        return callers.local.model_copy(update={"principal": both})


@MUTANTS("credentials kept in mind", made_for="TRA-05", fails="TRA-05")
class KeepsInMind(ReferenceTransport):
    """Whom a header proved once it proves for ever."""

    async def identified(self, callers: Callers, authorization: str | None) -> CallContext:
        """As before."""
        mind: dict[str | None, CallContext] = self.__dict__.setdefault("mind", {})
        if authorization not in mind:
            mind[authorization] = await super().identified(callers, authorization)
        return mind[authorization]


@MUTANTS("latest caller for all", made_for="TRA-05", fails="TRA-05")
class SharesTheCaller(ReferenceTransport):
    """Who was proved last is kept in one place for all requests that are under way."""

    async def identified(self, callers: Callers, authorization: str | None) -> CallContext:
        """Whoever came last."""
        self.context = await super().identified(callers, authorization)
        await asyncio.sleep(0)
        return self.context


@MUTANTS("strangers told that nothing is there", made_for="TRA-05", fails="TRA-05")
class HidesTheDoor(ReferenceTransport):
    """A request without valid credentials is refused as not_found, so that no client asks its user to sign in."""

    async def identified(self, callers: Callers, authorization: str | None) -> CallContext:
        """Hidden."""
        try:
            return await super().identified(callers, authorization)
        except Unauthenticated:
            raise NotFound from None


@MUTANTS("unchecked taken for bad", made_for="TRA-05", fails="TRA-05")
class TakesForBad(ReferenceTransport):
    """Credentials that cannot be checked now are refused as bad ones, so that clients throw them away."""

    async def identified(self, callers: Callers, authorization: str | None) -> CallContext:
        """As bad."""
        try:
            return await super().identified(callers, authorization)
        except IssuerUnavailable:
            raise Unauthenticated from None
