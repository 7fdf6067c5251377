"""The matrix over one server: each call by each caller on a fresh place, and what there is to complain of."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx2

from muniment.authentication.verifier import Verifier
from muniment.conformance.target import Refused, Reply
from muniment.engine import Engine
from muniment.models import CallContext, Principal
from muniment.ports import Callers
from muniment.reference import ReferenceStorage
from muniment_transport_http.conformance import target as http_target
from muniment_transport_http.conformance_client import HttpClient
from muniment_transport_http.routes import STREAM_PATH
from muniment_transport_mcp.conformance import target as mcp_target
from muniment_transport_mcp.conformance_client import McpClient, OverHttp
from tests.matrix.cases import Case
from tests.matrix.credentials import Credentials
from tests.matrix.estate import Clock, Estate, Place, added, build, changed
from tests.matrix.rules import ANONYMOUS, CALLERS, OK, TEXTS, On, Rule, Who, is_hidden, outcome, refused_unseen

CREATES_MISSING = {"http": True, "mcp": False}
"""Whether a write may name a project that does not exist, by the transport."""
LOCAL = CallContext(principal=Principal(user="corp:alice", platform=True), default_project="acme/estate")
"""Who started the server, and may do a lot; no caller over a network is that."""

WITHOUT_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of servers without TLS; the authorities of the usual one take longer to load than a call."""
FRESH = ("id", "project_id", "updated_at")


class Client(Protocol):
    """A client of either transport."""

    async def call(self, operation: str, payload: Mapping[str, Any]) -> Reply:
        """Call an operation. Raises Refused."""
        ...


@dataclass(frozen=True)
class Sent:
    """What is sent beside the input, with every request: headers and parameters of the URL."""

    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, str] = field(default_factory=dict[str, str])


NOTHING_MORE = Sent()


@dataclass(frozen=True)
class Answer:
    """What came back: ``ok`` or the code, the whole text, and the record."""

    code: str
    text: str
    record: Mapping[str, Any]

    def project(self) -> str | None:
        """The id of the project that the record is about, where it says one."""
        return self.record.get("project", {}).get("id") or self.record.get("project_id")

    def comparable(self) -> str:
        """The record without what is fresh in each answer."""
        return json.dumps({name: value for name, value in self.record.items() if name not in FRESH}, sort_keys=True)


@dataclass(frozen=True)
class Wrong:
    """A cell that is not as the rules say."""

    transport: str
    case: Case
    who: Who
    said: str

    def __str__(self) -> str:
        return f"{self.transport}: {self.case} by {self.who}: {self.said}"


class Matrix:
    """A server over one transport, and what proves each caller there."""

    def __init__(self, transport: str, server: Any, storage: ReferenceStorage, estate: Estate) -> None:
        self.transport = transport
        self._server = server
        self._storage = storage
        self._estate = estate
        self._tokens: dict[Who, str] = {}

    async def admit(self, callers: Iterable[Who], credentials: Credentials) -> None:
        """Make what proves the callers."""
        for who in callers:
            if who is not ANONYMOUS:
                self._tokens[who] = await credentials.token(who, self._storage)

    def token(self, who: Who) -> str:
        """What proves a caller."""
        return self._tokens[who]

    async def wrong(
        self,
        cases: Iterable[Case],
        callers: Iterable[Who],
        *,
        beside: Sent = NOTHING_MORE,
        within: Mapping[str, Any] | None = None,
        is_input: bool = False,
    ) -> list[Wrong]:
        """The cells whose outcome is not what the rules say, and in which way.

        ``beside`` is sent with every request and ``within`` is added to every input; where that makes an input that no
        operation takes (``is_input``), whoever is let in is refused for it.
        """
        found: list[Wrong] = []
        async with AsyncExitStack() as stack:
            clients = {who: await stack.enter_async_context(self._client(who, beside)) for who in callers}
            for case in cases:
                for who, client in clients.items():
                    expected = outcome(case.rule, who, creates_missing=CREATES_MISSING[self.transport])
                    if is_input and refused_unseen(case.rule, who) is None:
                        expected = "invalid_input"
                    cell = _Cell(case, who, client, expected, within or {})
                    complaints = await cell.complaints(self._estate, self._storage)
                    found += [Wrong(self.transport, case, who, said) for said in complaints]
        self._estate.check_rows()
        return found

    async def stream(self, who: Who) -> str:
        """What the stream of an agent's arrivals, which is no operation, answers over HTTP: ``ok`` or the code."""
        async with (
            self._http(who, NOTHING_MORE) as http,
            http.stream("GET", self._server.url + STREAM_PATH) as response,
        ):
            return OK if response.is_success else json.loads(await response.aread())["code"]

    @asynccontextmanager
    async def _client(self, who: Who, beside: Sent) -> AsyncGenerator[Client]:
        async with self._http(who, beside) as http:
            if self.transport == "http":
                yield HttpClient(http, self._server.url)
            else:
                revision = self._server.revision
                yield McpClient(OverHttp(http, self._server.url, revision), revision)

    def _http(self, who: Who, beside: Sent) -> httpx2.AsyncClient:
        headers = dict(beside.headers)
        if who in self._tokens:
            headers["authorization"] = f"Bearer {self._tokens[who]}"
        return httpx2.AsyncClient(
            timeout=60, trust_env=False, verify=WITHOUT_AUTHORITIES, headers=headers, params=dict(beside.query)
        )


@dataclass(frozen=True)
class _Cell:
    """One call by one caller."""

    case: Case
    who: Who
    client: Client
    expected: str
    within: Mapping[str, Any]

    async def complaints(self, estate: Estate, storage: ReferenceStorage) -> list[str]:
        """Make the call; what is wrong with what came of it."""
        estate.put_back()
        place, before = estate.place_of(self.who), estate.rows()
        answer = await self._called(place)
        after = estate.rows()
        found = [f"it is {answer.code}, and must be {self.expected}"] if answer.code != self.expected else []
        if (self.expected != OK or not self.case.rule.changes) and before != after:
            found.append(f"it changed {', '.join(changed(before, after))}")
        if self._must_change and before == after:
            found.append("it changed nothing")
        if not self._may_touch and not estate.is_whole(after):
            found.append("it changed what is another's")
        named = self._may_touch and self.case.rule.on in (On.KEY, On.PROJECT)
        if named and answer.project() not in (None, place.project):
            found.append("it is about another project")
        found += self._leaks(answer, place)
        me = (self.who.spelled, self.who.agent)
        found += [f"it is noted as done by {one}" for one in added(storage, before) if one != me]
        if is_hidden(self.case.rule, self.who) and self.expected in (OK, self.case.rule.on.hidden):
            estate.put_back()
            found += self._tells_apart(answer, place, await self._called(place.elsewhere()))
        return found

    @property
    def _must_change(self) -> bool:
        rule = self.case.rule
        return self.expected == OK and rule.changes and not self.case.settled and self.who.has(rule.on) > 0

    @property
    def _may_touch(self) -> bool:
        rule = self.case.rule
        return self.expected == OK and rule.on is not On.SELF and self.who.has(rule.on) > 0 and not self._of_rival(rule)

    def _of_rival(self, rule: Rule) -> bool:
        return rule.on is On.KEY and self.who.rival

    def _leaks(self, answer: Answer, place: Place) -> list[str]:
        """Texts that the answer has and may not have, or the other way round."""
        found = [f"it shows {one.text!r}" for one in TEXTS if one.text in answer.text and not one.readers(self.who)]
        if answer.code == OK and is_hidden(self.case.rule, self.who) and place.project in answer.text:
            found.append("it shows the project's id")
        missing = (one for one in self.case.shows if one.readers(self.who) and one.text not in answer.text)
        return found + [f"it does not show {one.text!r}" for one in missing if self.expected == OK]

    def _tells_apart(self, answer: Answer, place: Place, other: Answer) -> list[str]:
        """What differs from the answer on what does not exist."""
        seen, unseen = place.unnamed(answer.comparable()), place.elsewhere().unnamed(other.comparable())
        return [] if seen == unseen else [f"it says {seen}, and of what does not exist {unseen}"]

    async def _called(self, place: Place) -> Answer:
        try:
            reply = await self.client.call(self.case.operation, {**self.case.payload(place), **self.within})
        except Refused as refused:
            record = {"code": refused.code, "message": refused.message, "details": dict(refused.details)}
            return Answer(refused.code, json.dumps(record, ensure_ascii=False), record)
        return Answer(OK, reply.body, reply.answer)


@asynccontextmanager
async def serving(transport: str, credentials: Credentials) -> AsyncGenerator[Matrix]:
    """A server over ``transport`` with the place behind it, which asks for credentials of one kind."""
    clock = Clock()
    storage = ReferenceStorage(clock=clock)
    target = http_target() if transport == "http" else mcp_target("http:")
    verifier = Verifier(credentials.settings, storage)
    async with Engine(storage, None, background=False) as engine:
        estate = await build(engine, storage, clock)
        async with target.server(engine, Callers(LOCAL, verifier, anybody=True)) as server:
            matrix = Matrix(transport, server, storage, estate)
            await matrix.admit((*CALLERS, *credentials.bad), credentials)
            yield matrix
        await verifier.close()
