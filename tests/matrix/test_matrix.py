"""Every operation over both transports by every kind of caller gives what the rules of access say."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest

from muniment.operations import OPERATIONS
from tests.matrix.cases import CASES
from tests.matrix.credentials import ApiTokens, Credentials, issuing
from tests.matrix.matrix import Sent, Wrong, serving
from tests.matrix.mutants import MUTANTS, Mutant
from tests.matrix.rules import ADA, ANONYMOUS, CALLERS, OWNER, outcome

TRANSPORTS = ("http", "mcp")
HEADERS = {
    **dict.fromkeys(("X-User", "X-User-Id", "X-Remote-User", "Remote-User", "X-Forwarded-User", "From"), OWNER),
    **dict.fromkeys(("X-Auth-Request-User", "X-Forwarded-Email", "X-Muniment-User", "X-On-Behalf-Of"), OWNER),
    **dict.fromkeys(("X-Groups", "X-Forwarded-Groups", "X-Auth-Request-Groups", "Remote-Groups"), "corp:writers"),
    **dict.fromkeys(("X-Agent", "X-Muniment-Agent"), ADA),
    "X-Platform": "true",
}
"""Headers by which others name who calls."""
OTHERS = [who for who in CALLERS if who.name in ("ro", "stranger", "another agent")] + [ANONYMOUS]
"""Callers who would gain by being somebody else."""


@pytest.fixture(scope="module")
def kinds() -> Generator[dict[str, Credentials]]:
    """Both kinds of credentials."""
    with pytest.MonkeyPatch.context() as patched, issuing() as jwts:
        patched.setenv("no_proxy", "*")
        yield {"API tokens": ApiTokens(), "JWTs": jwts}


def test_every_operation_has_a_case() -> None:
    """The list of operations is the registry's, so that one added later is judged at once."""
    assert {case.operation for case in CASES} == OPERATIONS.keys()
    assert len({str(case) for case in CASES}) == len(CASES), "two cells have one name"


@pytest.mark.parametrize("kind", ["API tokens", "JWTs"])
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_call_by_every_caller(transport: str, kind: str, kinds: dict[str, Credentials]) -> None:
    """The outcome is the rules'; a refusal changes nothing; what may not be read is answered as what is not there."""
    async with serving(transport, kinds[kind]) as matrix:
        wrong = await matrix.wrong(CASES, (*CALLERS, *kinds[kind].bad))
    assert not wrong, listed(wrong)


async def test_the_stream_is_for_agents_that_may_claim() -> None:
    """What says that there is something to claim is had by whoever may claim, and by nobody else."""
    claims = next(case.rule for case in CASES if case.operation == "event.claim")
    callers = (*CALLERS, *ApiTokens.bad)
    async with serving("http", ApiTokens()) as matrix:
        seen = {who.name: await matrix.stream(who) for who in callers}
    assert seen == {who.name: outcome(claims, who, creates_missing=True) for who in callers}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_headers_that_name_somebody_change_nothing(transport: str) -> None:
    """ACC-07: also good credentials of another one, in any header but the one for them."""
    async with serving(transport, ApiTokens()) as matrix:
        good = f"Bearer {matrix.token(CALLERS[0])}"
        headers = {**HEADERS, "Proxy-Authorization": good, "X-Authorization": good, "Cookie": f"access_token={good}"}
        wrong = await matrix.wrong(CASES, OTHERS, beside=Sent(headers=headers))
    assert not wrong, listed(wrong)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_inputs_that_name_somebody_change_nothing(transport: str) -> None:
    """ACC-07: no operation takes the name of a caller, or what proves one, so a call with one is refused."""
    async with serving(transport, ApiTokens()) as matrix:
        wrong: list[Wrong] = []
        for named in ({"user": OWNER}, {"access_token": matrix.token(CALLERS[0])}):
            wrong += await matrix.wrong(CASES, OTHERS, within=named, is_input=True)
    assert not wrong, listed(wrong)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_url_that_names_somebody_changes_nothing(transport: str) -> None:
    """ACC-07: the parameters of a URL are a part of the input over HTTP, and nobody's over MCP."""
    async with serving(transport, ApiTokens()) as matrix:
        named = {"user": OWNER, "access_token": matrix.token(CALLERS[0])}
        wrong = await matrix.wrong(CASES, OTHERS, beside=Sent(query=named), is_input=transport == "http")
    assert not wrong, listed(wrong)


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_broken_rule_is_seen(name: str, kinds: dict[str, Credentials], monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix can fail: with one rule broken, just the callers that gain or lose by it are wrong."""
    mutant: Mutant = MUTANTS[name]
    mutant.breaks(monkeypatch)
    (case,) = (case for case in CASES if str(case) == mutant.case)
    async with serving("http", kinds[mutant.kind]) as matrix:
        wrong = await matrix.wrong([case], (*CALLERS, *kinds[mutant.kind].bad), beside=Sent(headers=HEADERS))
    assert {one.who.name for one in wrong} == mutant.caught, listed(wrong)


def listed(wrong: Sequence[Wrong]) -> str:
    """The cells, one a line."""
    return "\n".join(map(str, wrong))
