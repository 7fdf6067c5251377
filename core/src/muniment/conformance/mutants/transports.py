"""Mutants made for TRA-01 to TRA-08: what a transport loses, adds or lets out on the way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel

from muniment.conformance.mutants.mutant import Mutants
from muniment.conformance.reference_transport import ReferenceTransport
from muniment.engine.embeddings import EmbedderState
from muniment.errors import Internal, InvalidInput, MunimentError, NotFound, PayloadTooLarge
from muniment.limits import BODY_MAX, JSON_ESCAPE_MAX
from muniment.operations import OPERATIONS
from muniment.serving import incidents
from muniment.serving.bodies import too_large

MUTANTS = Mutants()

_BUFFER = 16_384


@MUTANTS(
    "operation left out",
    made_for="TRA-01",
    fails="READ-05 ACC-07 ACC-11 SEC-15 SEC-16 DIG-05 ACK-07 ACK-08 TRA-01 TRA-02 TRA-03 TRA-05",
)
class LeavesOneOut(ReferenceTransport):
    """An operation that was added to the registry is not served."""

    async def called(self, operation: str, sent: Mapping[str, Any]) -> BaseModel:
        """All but one."""
        if operation == "event.dead":
            raise NotFound(f"There is no operation {operation}.")
        return await super().called(operation, sent)


@MUTANTS("details as text", made_for="TRA-01", fails="MUT-03 MUT-05 MUT-07 SEC-10 TRA-01")
class DetailsAsText(ReferenceTransport):
    """The details of a refusal are written as texts, numbers too."""

    def refused(self, refusal: MunimentError) -> str:
        """Each as a text."""
        reply = json.loads(super().refused(refusal))
        details: dict[str, Any] = reply["refusal"].get("details", {})
        return json.dumps({"refusal": {**reply["refusal"], "details": {k: str(v) for k, v in details.items()}}})


@MUTANTS("message in one line of ASCII", made_for="TRA-01", fails="TRA-01")
class MessageAsHeader(ReferenceTransport):
    """The message of a refusal is sent as a header, and comes back without what a header cannot hold."""

    def refused(self, refusal: MunimentError) -> str:
        """Only printable ASCII."""
        reply = json.loads(super().refused(refusal))
        message = " ".join(reply["refusal"]["message"].split()).encode("ascii", "replace").decode()
        return json.dumps({"refusal": {**reply["refusal"], "message": message}})


@MUTANTS("flags as numbers", made_for="TRA-01", fails="TRA-01")
class FlagsAsNumbers(ReferenceTransport):
    """A flag in the details of a refusal is sent as 0 or 1."""

    def refused(self, refusal: MunimentError) -> str:
        """Each as a number."""
        return super().refused(refusal).replace(": true", ": 1").replace(": false", ": 0")


@MUTANTS("flags of a record as numbers", made_for="TRA-02", fails="TRA-02")
class RecordFlagsAsNumbers(ReferenceTransport):
    """A flag in a record is sent as 0 or 1."""

    def answered(self, record: BaseModel) -> str:
        """Each as a number."""
        return _compact(_without_flags(json.loads(super().answered(record))))


@MUTANTS("scores rounded", made_for="TRA-02", fails="TRA-02")
class RoundsScores(ReferenceTransport):
    """Numbers are sent with two places."""

    def answered(self, record: BaseModel) -> str:
        """Rounded."""
        return _compact(json.loads(super().answered(record), parse_float=lambda text: round(float(text), 2)))


@MUTANTS(
    "fields without a value left out",
    made_for="TRA-02",
    fails="MUT-01 MUT-10 MUT-15 READ-01 READ-02 READ-03 READ-04 ACC-02 ACC-06 ACC-10 ACC-12 SCOPE-01 ACK-05 ACK-07 "
    "AUTH-05 TRA-02",
)
class LeavesNullsOut(ReferenceTransport):
    """A record's fields that are null are not sent."""

    def answered(self, record: BaseModel) -> str:
        """Without them."""
        return f'{{"record":{incidents.disclosed(record).model_dump_json(exclude_none=True)}}}'


@MUTANTS("unknown fields dropped", made_for="TRA-03", fails="MUT-14 READ-05 ACC-07 SEC-03 ACK-06 TRA-03")
class DropsUnknown(ReferenceTransport):
    """The input is built from the fields that the operation has; others are dropped."""

    def parsed(self, request: bytes) -> tuple[str, Mapping[str, Any]]:
        """Only what is known."""
        operation, sent = super().parsed(request)
        known = OPERATIONS[operation].input.model_fields
        return operation, {name: value for name, value in sent.items() if name in known}


@MUTANTS("words of the protocol dropped", made_for="TRA-03", fails="TRA-03")
class DropsItsOwn(ReferenceTransport):
    """Fields that are called as the protocol's own are taken out of the input."""

    def parsed(self, request: bytes) -> tuple[str, Mapping[str, Any]]:
        """Without the protocol's own."""
        operation, sent = super().parsed(request)
        return operation, {name: value for name, value in sent.items() if name not in ("_meta", "context")}


@MUTANTS("message of an internal error shown", made_for="TRA-04", fails="TRA-04 TRA-05")
class ShowsTheError(ReferenceTransport):
    """An internal error shows what went wrong."""

    def failed(self, error: Exception) -> str:
        """The error's own words."""
        reply = json.loads(super().failed(error))
        return json.dumps({"refusal": {**reply["refusal"], "message": f"{reply['refusal']['message']} {error}"}})


@MUTANTS("internal refusal passed on", made_for="TRA-04", fails="TRA-04")
class BelievesTheId(ReferenceTransport):
    """A refusal that says internal, and has an id, is sent as any other."""

    def refused(self, refusal: MunimentError) -> str:
        """As it is."""
        return json.dumps({"refusal": refusal.body()}) if "id" in refusal.details else super().refused(refusal)


@MUTANTS("one id for all errors", made_for="TRA-04", fails="TRA-04")
class OneId(ReferenceTransport):
    """Every internal error has the same id, so that none is found by it."""

    def failed(self, error: Exception) -> str:
        """The process's."""
        return json.dumps({"refusal": Internal("The id 1 finds it in the log.", id="1").body()})


@MUTANTS("size checked afterwards", made_for="TRA-06", fails="TRA-06")
class ReadsWhole(ReferenceTransport):
    """A request is read whole, and its size checked then."""

    async def received(self, pieces: AsyncIterator[bytes], announced: int | None) -> bytes:
        """All of it."""
        body = b"".join([piece async for piece in pieces])
        if len(body) > BODY_MAX:
            raise too_large()
        return body


@MUTANTS("size by its name alone", made_for="TRA-06", fails="TRA-06")
class OtherRefusal(ReferenceTransport):
    """A request that is too large is refused as any that is wrong."""

    async def received(self, pieces: AsyncIterator[bytes], announced: int | None) -> bytes:
        """Invalid."""
        try:
            return await super().received(pieces, announced)
        except PayloadTooLarge:
            raise InvalidInput("body", "it is too large") from None


@MUTANTS("escapes not reckoned with", made_for="TRA-06", fails="TRA-06")
class RefusesLarge(ReferenceTransport):
    """A request may be as large as all sections are when stored, not as large as JSON may make them."""

    async def received(self, pieces: AsyncIterator[bytes], announced: int | None) -> bytes:
        """At most that."""
        body = await super().received(pieces, announced)
        if len(body) > BODY_MAX // JSON_ESCAPE_MAX:
            raise too_large()
        return body


@MUTANTS("length demanded", made_for="TRA-06", fails="TRA-06")
class RefusesChunked(ReferenceTransport):
    """A request that does not say its length is refused, of whatever size it is."""

    async def received(self, pieces: AsyncIterator[bytes], announced: int | None) -> bytes:
        """None without a length."""
        if announced is None:
            raise too_large()
        return await super().received(pieces, announced)


@MUTANTS("first piece taken for all", made_for="TRA-06", fails="TRA-06")
class ReadsOnePiece(ReferenceTransport):
    """A request whose length is not said ends with what was there when it was first looked at."""

    async def received(self, pieces: AsyncIterator[bytes], announced: int | None) -> bytes:
        """What comes first, of one that says no length."""
        if announced is not None:
            return await super().received(pieces, announced)
        body = bytearray()
        async for piece in pieces:
            body += piece
            if len(body) > BODY_MAX:
                raise too_large()
            if len(piece) < _BUFFER:
                break
        return bytes(body)


@MUTANTS("greeting waits for the model", made_for="TRA-07", fails="TRA-07")
class GreetsLate(ReferenceTransport):
    """A client is greeted once the model is loaded."""

    async def hello(self) -> Sequence[str]:
        """After the embedder, where there is one."""
        if self.engine.embeddings.state is not EmbedderState.OFF:
            await self.engine.embeddings.space()
        return await super().hello()


@MUTANTS("record sent twice", made_for="TRA-08", fails="TRA-08")
class SendsTwice(ReferenceTransport):
    """A record is sent as data, and once more as text for those who cannot read it."""

    def answered(self, record: BaseModel) -> str:
        """Both."""
        return json.dumps({"record": record.model_dump(mode="json"), "text": record.model_dump_json()})


@MUTANTS("envelope that describes everything", made_for="TRA-08", fails="TRA-08")
class DescribesAll(ReferenceTransport):
    """Each reply brings the names of all operations along."""

    def answered(self, record: BaseModel) -> str:
        """With them."""
        return json.dumps({"record": record.model_dump(mode="json"), "operations": sorted(OPERATIONS)})


def _compact(message: Any) -> str:
    """JSON as records are sent."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


def _without_flags(value: Any) -> Any:
    """JSON with 0 and 1 for its flags."""
    match value:
        case bool():
            return int(value)
        case dict():
            return {name: _without_flags(part) for name, part in cast("dict[str, Any]", value).items()}
        case list():
            return [_without_flags(part) for part in cast("list[Any]", value)]
        case _:
            return value
