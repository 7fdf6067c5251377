"""What each failure of a provider becomes, and that the key is in none of it."""

from __future__ import annotations

import io
import json
import logging
import re
import socket
import traceback
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

import pytest

from muniment.errors import ConfigurationError, EmbedderUnavailable, InvalidInput, MunimentError
from muniment_embed_openai import said
from muniment_embed_openai.embedder import OpenAIEmbedder
from muniment_embed_openai.loopback_api import (
    KEY,
    Behaviour,
    LoopbackApi,
    alters,
    drips,
    hangs,
    refuses,
    says,
)
from muniment_embed_openai.said import Said

Opened = Callable[..., Awaitable[OpenAIEmbedder]]

SECRET = "the passphrase of the safe is lentil-soup"
DOWN = EmbedderUnavailable
WRONG = ConfigurationError
TEXT = InvalidInput


Case = Callable[[LoopbackApi], Behaviour]


def fixed(content: bytes, **how: Any) -> Case:
    """The answer is ``content``."""
    return lambda api: says(content, **how)


def rows(change: Callable[[list[Any]], object]) -> Case:
    """The answer's list of vectors is changed."""
    return lambda api: alters(api, lambda answer: change(answer["data"]))


def row(embedding: object) -> Case:
    """The first vector is ``embedding`` instead."""
    return rows(lambda data: data[0].update(embedding=embedding))


REFUSED: dict[str, tuple[Behaviour, type[MunimentError], str, str]] = {
    "bad key": (refuses(401, code="invalid_api_key"), WRONG, "bad_key", r"refused the API key in ACME_KEY"),
    "bad key as 400": (refuses(400, "API key not valid."), WRONG, "bad_key", r"refused the API key in ACME_KEY"),
    "key without access": (refuses(403), WRONG, "bad_key", r"does not let the API key in ACME_KEY do this"),
    "unknown model": (refuses(404), WRONG, "unknown_model", r"no model 'words-256'.*Nothing is used in its place"),
    "model of others": (refuses(403, code="model_not_found"), WRONG, "unknown_model", r"no model 'words-256'"),
    "another page": (says(b"<html>", status=404, kind="text/html"), WRONG, "unknown_model", r"\(HTTP 404\)"),
    "used-up quota": (refuses(429, code="insufficient_quota"), DOWN, "quota", r"quota is used up.*add credit"),
    "unpaid": (refuses(402), DOWN, "quota", r"quota is used up"),
    "too many requests": (refuses(429), DOWN, "rate_limited", r"asked too often"),
    "refused text": (refuses(400, "It is against the rules."), TEXT, "refused", r"HTTP 400: It is against the rules"),
    "too much at once": (refuses(413), TEXT, "refused", r"lower batch_texts"),
    "failing": (refuses(500), DOWN, "failing", r"HTTP 500: It does not work now"),
    "failing in other words": (says(b'{"error": "no memory"}', status=503), DOWN, "failing", r"HTTP 503: no memory"),
    "failing without words": (says(b"<h1>Bad gateway</h1>", status=502), DOWN, "failing", r"\(HTTP 502\)"),
}
UNREADABLE: dict[str, tuple[Case, str]] = {
    "no JSON": (fixed(b"<html>Welcome</html>", kind="text/html"), r"something else|cannot be read"),
    "no JSON that says it is": (fixed(b"<html>Welcome</html>"), r"cannot be read"),
    "truncated JSON": (fixed(b'{"object": "list", "data": [{"index": 0, "embedd'), r"cannot be read"),
    "an empty answer": (fixed(b""), r"cannot be read"),
    "another object": (fixed(b'{"object": "list"}'), r"something else than embeddings"),
    "a list": (fixed(b"[1, 2]"), r"something else|cannot be read"),
    "one vector too few": (rows(list[Any].pop), r"gave 1 vectors for 2 texts"),
    "one vector too many": (rows(lambda data: data.append(data[0])), r"gave 3 vectors for 2 texts"),
    "no vectors": (rows(list[Any].clear), r"gave 0 vectors for 2 texts"),
    "an index twice": (rows(lambda data: data[1].update(index=0)), r"which vector is which text's"),
    "an index beyond": (rows(lambda data: data[1].update(index=2)), r"which vector is which text's"),
    "NaN": (row([float("nan")] * 256), r"NaN or infinity"),
    "infinity": (row([float("inf")] * 256), r"NaN or infinity"),
    "null in a vector": (row([None] * 256), r"NaN or infinity"),
    "null for a vector": (row(None), r"NaN or infinity|no list of numbers"),
    "words in a vector": (row(["much"] * 256), r"not consist of numbers"),
    "numbers beyond all": (row([10**400] * 256), r"cannot be read|not consist of numbers"),
    "base64 cut off": (row("AAAAA"), r"not consist of numbers"),
    "a matrix": (row([[0.5] * 256]), r"no list of numbers"),
    "an empty vector": (row([]), r"no list of numbers"),
    "zeros": (row([0.0] * 256), r"vector of zeros"),
    "two dimensions": (row([0.5] * 64), r"different dimensions in one answer"),
    "another model's dimensions": (
        rows(lambda data: [one.update(embedding=[0.5] * 64) for one in data]),
        r"64 and 256",
    ),
}


@pytest.fixture
def logged() -> Generator[io.StringIO]:
    """Everything that anybody logs meanwhile, tracebacks and all."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.setLevel(before)
    root.removeHandler(handler)


async def refusal_of(embedder: OpenAIEmbedder, logged: io.StringIO) -> MunimentError:
    """What embedding two texts is refused with, once it is shown that it gives away neither key nor text."""
    with pytest.raises(MunimentError) as refused:
        await embedder.embed_passages([SECRET, "another text"])
    error = refused.value
    try:
        raise RuntimeError("whoever calls") from error
    except RuntimeError:
        logging.getLogger("test").exception("logged: %r %s %s", error, error.body(), embedder)
    shown = logged.getvalue() + "".join(traceback.format_exception(error)) + json.dumps(error.body()) + repr(error)
    assert KEY not in shown
    assert SECRET not in shown
    assert "lentil" not in shown
    assert error.__cause__ is None
    assert error.__context__ is None
    return error


@pytest.mark.parametrize("case", REFUSED)
async def test_each_refusal_is_told_apart(case: str, api: LoopbackApi, opened: Opened, logged: io.StringIO) -> None:
    """EMB-06, EMB-07: each has its reason, its cause and its remedy in its message, and names the model."""
    behaviour, kind, reason, said = REFUSED[case]
    embedder = await opened(max_retries=0)
    await embedder.space()
    api.then(behaviour)
    error = await refusal_of(embedder, logged)

    assert type(error) is kind
    assert error.details.items() >= {"model": "words-256", "reason": reason}.items()
    assert "embedder openai:words-256: the server at http://127.0.0.1:" in error.message
    assert re.search(said, error.message)
    assert len(await embedder.embed_passages(["it is back"])) == 1


@pytest.mark.parametrize("case", UNREADABLE)
async def test_an_answer_that_holds_no_vectors(
    case: str, api: LoopbackApi, opened: Opened, logged: io.StringIO
) -> None:
    """EMB-06: whatever is wrong with an answer, it is a typed refusal, and never a vector."""
    made, said = UNREADABLE[case]
    embedder = await opened()
    await embedder.space()
    api.then(made(api))
    error = await refusal_of(embedder, logged)

    assert type(error) is EmbedderUnavailable
    assert error.details["reason"] == "bad_answer"
    assert re.search(said, error.message)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
@pytest.mark.parametrize(
    "echo",
    [
        KEY,
        SECRET,
        SECRET[9:30],
        f"Bearer {KEY}",
        f"{KEY[:7]}***",
        "sk-proj-7e***9a",
        SECRET.upper(),
        SECRET.replace(" ", "\\n"),
        "".join(f"\\u{ord(letter):04x}" for letter in SECRET),
        "".join(f"\\x{ord(letter):02x}" for letter in SECRET),
    ],
)
async def test_a_server_that_repeats_what_it_got(
    status: int, echo: str, api: LoopbackApi, opened: Opened, logged: io.StringIO
) -> None:
    """The key and the texts are in no message and no log, also where the server says them back."""
    embedder = await opened(max_retries=0)
    await embedder.space()
    api.then(refuses(status, f"You sent {echo}, which is wrong."))
    error = await refusal_of(embedder, logged)

    assert not re.search(r"(?i)key-of|sk-proj|passphrase|safe|\\u0070|\\x70", error.message)


@pytest.mark.parametrize("text", [r"C:\secret\notes\new\token.txt", "!?!?", "a\tb\tc \\ d"])
def test_a_text_that_looks_escaped_is_not_shown(text: str) -> None:
    """Nor one without letters; whether the server repeats it as it is or escapes it."""
    for echo in (text, json.dumps(text), repr(text), ascii(text)):
        assert Said(message=f"You sent {echo}.").shown(None, [text]) == "", echo
    assert Said(message="You sent nothing.").shown(None, [text]) == "You sent nothing."


def test_a_long_message_is_read_as_far_as_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look for a piece of it in the texts holds up all others: it is not for the server to say how many."""
    looked_at: list[int] = []

    def counted(message: str, texts: Sequence[str]) -> bool:
        looked_at.append(len(message))
        return False

    monkeypatch.setattr(said, "_repeats", counted)
    assert Said(message="A long message. " * 100_000).shown(KEY, ["a text"]).startswith("A long message.")
    assert max(looked_at) < 1_000


@pytest.mark.parametrize(
    ("name", "value"),
    [("ALL_PROXY", "socks5://localhost:1"), ("HTTP_PROXY", "http://h:abc"), ("SSL_CERT_FILE", "/nonexistent.pem")],
)
async def test_a_client_that_cannot_be_made(
    name: str, value: str, opened: Opened, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable is wrong for which this plugin cannot answer; it is named, and nobody is asked to report it."""
    monkeypatch.setenv(name, value)
    error = await refusal_of(await opened(), logged)
    assert type(error) is ConfigurationError
    assert name in error.message
    assert value not in error.message


@pytest.mark.parametrize("behaviour", [hangs, drips])
async def test_a_provider_that_is_too_slow(
    behaviour: Behaviour, api: LoopbackApi, opened: Opened, logged: io.StringIO
) -> None:
    """EMB-06: a call ends with its time, whether nothing comes or an answer has no end; retries add none to it."""
    embedder = await opened(timeout=0.5)
    await embedder.space()
    api.always(behaviour)
    error = await refusal_of(embedder, logged)

    assert type(error) is EmbedderUnavailable
    assert error.details["reason"] == "timed_out"
    assert "within 0.5 s" in error.message


async def test_a_provider_that_is_not_there(opened: Opened, logged: io.StringIO) -> None:
    """EMB-06: nobody who listens, and a name that nobody has, are embedder_unavailable."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
        for base_url in (nobody, "http://no-such-host.invalid/v1"):
            error = await refusal_of(await opened(base_url=base_url, max_retries=0), logged)
            assert type(error) is EmbedderUnavailable
            assert error.details["reason"] == "unreachable"
            assert base_url in error.message


async def test_a_redirect_is_not_followed(api: LoopbackApi, opened: Opened, logged: io.StringIO) -> None:
    """The texts go to the server that was named, and to no other that it names."""
    embedder = await opened()
    await embedder.space()
    api.asked.clear()
    for status in (301, 302, 307, 308):
        api.then(refuses(status, headers={"location": "/v1/embeddings"}))
        error = await refusal_of(embedder, logged)
        assert type(error) is ConfigurationError
        assert error.details["reason"] == "redirect"
    assert len(api.asked) == 4
