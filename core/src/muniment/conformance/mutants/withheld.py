"""Mutants made for TRA-09: what callers are told of the server's own parts."""

from __future__ import annotations

import json
from typing import Any

from muniment.conformance.mutants.mutant import Mutants
from muniment.conformance.reference_transport import ReferenceTransport
from muniment.errors import Internal, MunimentError
from muniment.serving import incidents

MUTANTS = Mutants()


@MUTANTS("cause shown to callers", made_for="TRA-09", fails="TRA-09")
class ShowsTheCause(ReferenceTransport):
    """A refusal of the storage, the embedder or the configuration is sent with its message, as any other."""

    def refused(self, refusal: MunimentError) -> str:
        """As it is."""
        return self.failed(refusal) if refusal.code == Internal.code else json.dumps({"refusal": refusal.body()})


@MUTANTS("details of the cause kept", made_for="TRA-09", fails="TRA-09")
class KeepsTheDetails(ReferenceTransport):
    """What is wrong with a part of the server is told in general words, beside the details of the cause."""

    def refused(self, refusal: MunimentError) -> str:
        """Both."""
        reply = json.loads(super().refused(refusal))
        told: dict[str, Any] = reply["refusal"]
        if any(isinstance(refusal, kind) for kind in incidents.OF_THE_SERVER):
            told["details"] = {**refusal.details, **told["details"]}
        return json.dumps(reply)
