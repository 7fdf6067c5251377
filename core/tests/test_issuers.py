"""Tokens of OpenID providers, judged with real keys and an issuer on a loopback port."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from muniment.authentication.issuers import Issuers
from muniment.authentication.keys import BURST, COOLDOWN_SECONDS, DISCOVERY, FRESH_SECONDS, STALE_SECONDS
from muniment.authentication.settings import IssuerSettings
from muniment.engine import Engine
from muniment.errors import IssuerUnavailable, NotFound, Unauthenticated
from muniment.models import CallContext, Principal
from muniment.reference import ReferenceStorage

AUDIENCE = "https://memory.example.com/mcp"
RSA_KEYS = [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)]
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WEAK_KEY = rsa.generate_private_key(public_exponent=65537, key_size=1024)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


class Issuer:
    """An OpenID provider: its metadata, its keys, and whom it says a token's holder is."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: dict[str, Any] = {"one": RSA_KEYS[0]}
        self.documents: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.was_asked = threading.Event()
        self.answering = threading.Event()
        self.answering.set()
        self.down = False
        self.moved = False

    def metadata(self) -> dict[str, Any]:
        """What it says of itself."""
        return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}

    def document(self, path: str) -> bytes:
        """What is at a path."""
        keys = {"keys": [self.public(name, key) for name, key in self.keys.items()]}
        return self.documents.get(path, json.dumps(self.metadata() if path == DISCOVERY else keys).encode())

    @staticmethod
    def public(name: str, key: Any) -> dict[str, Any]:
        """A key as the issuer publishes it: without an algorithm, as several providers do."""
        of: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        return {**of.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}

    def claims(self, **changes: Any) -> dict[str, Any]:
        """What a good token says, with some of it changed; None takes a claim away."""
        now = int(time.time())
        good = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 300, **changes}
        return {name: value for name, value in good.items() if value is not None}

    def token(self, *, key: Any = None, key_id: str | None = "one", algorithm: str = "RS256", **changes: Any) -> str:
        """A signed token."""
        headers = {} if key_id is None else {"kid": key_id}
        return jwt.encode(self.claims(**changes), key or RSA_KEYS[0], algorithm=algorithm, headers=headers)

    def settings(self, **changes: Any) -> IssuerSettings:
        """How the issuer is configured."""
        return IssuerSettings.model_validate({"issuer": self.url, "audience": AUDIENCE, **changes})


class Clock:
    """Seconds, which pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def server() -> Generator[tuple[str, list[Issuer]]]:
    """The address of a server, and the issuer that it serves for the test."""
    serving: list[Issuer] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer = serving[-1]
            issuer.asked.append(self.path)
            issuer.was_asked.set()
            issuer.answering.wait(10)
            body = b"{}" if issuer.down else issuer.document(self.path)
            self.send_response(503 if issuer.down else 302 if issuer.moved else 200)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}", serving
        http.shutdown()
        thread.join()


@pytest.fixture
def issuer(server: tuple[str, list[Issuer]], monkeypatch: pytest.MonkeyPatch) -> Issuer:
    """A fresh issuer."""
    monkeypatch.setenv("no_proxy", "*")
    url, serving = server
    serving.append(Issuer(url))
    return serving[-1]


def issuers(issuer: Issuer, clock: Callable[[], float] = time.monotonic, **changes: Any) -> Issuers:
    """The issuer alone, called corp."""
    return Issuers({"corp": issuer.settings(**changes)}, clock=clock)


async def test_a_good_token_proves_its_holder(issuer: Issuer) -> None:
    """The user is the issuer's name and the subject; without mappings it has no groups and is nobody else."""
    found = await issuers(issuer).principal(issuer.token(groups=["eng"], agent="ada/1", scope="platform"))

    assert found == Principal(user="corp:alice")


def tampered(issuer: Issuer) -> str:
    head, _, signature = issuer.token().split(".")
    return f"{head}.{encoded(issuer.claims(sub='mallory'))}.{signature}"


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(issuer: Issuer) -> str:
    return f"{encoded({'alg': 'none', 'kid': 'one'})}.{encoded(issuer.claims())}."


def confused(issuer: Issuer) -> str:
    """Signed by a secret that is the issuer's public key."""
    secret = RSA_KEYS[0].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    said = f"{encoded({'alg': 'HS256', 'kid': 'one'})}.{encoded(issuer.claims())}"
    signature = hmac.new(secret, said.encode(), hashlib.sha256).digest()
    return f"{said}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def with_critical_extension(issuer: Issuer) -> str:
    return jwt.encode(issuer.claims(), RSA_KEYS[0], algorithm="RS256", headers={"kid": "one", "crit": ["x"], "x": 1})


BAD_TOKENS: dict[str, tuple[Callable[[Issuer], str], str]] = {
    "for another audience": (
        lambda on: on.token(aud="https://other.example.com"),
        f"claim aud names no audience that is accepted.*: {AUDIENCE}; ask",
    ),
    "for an audience that is a number": (lambda on: on.token(aud=[7]), "claim aud names no audience"),
    "without an audience": (lambda on: on.token(aud=None), "has no claim aud; have its issuer give it"),
    "expired": (lambda on: on.token(exp=int(time.time()) - 31), r"expired \(exp\); sign in"),
    "without an end": (lambda on: on.token(exp=None), "has no claim exp; have its issuer give it"),
    "without an end and an audience": (lambda on: on.token(exp=None, aud=None), "has no claim exp and no claim aud;"),
    "whose end is no number": (lambda on: on.token(exp="soon"), "claim exp is no number of seconds; have its issuer"),
    "whose beginning is no number": (lambda on: on.token(nbf="soon"), "claim nbf is no number of seconds; have"),
    "made at no time": (lambda on: on.token(iat="now"), "claim iat is no number of seconds; have"),
    "not valid yet": (lambda on: on.token(nbf=int(time.time()) + 100), r"not valid yet \(nbf\); check the clocks"),
    "made in the future": (lambda on: on.token(iat=int(time.time()) + 100), r"not valid yet \(iat\); check the clocks"),
    "of another issuer": (
        lambda on: on.token(iss="https://login.example.org"),
        "claim iss names no issuer that is accepted here; sign in at one that is: http",
    ),
    "of an issuer with a slash more": (lambda on: on.token(iss=f"{on.url}/"), "claim iss names no issuer"),
    "without an issuer": (lambda on: on.token(iss=None), "has no claim iss; have its issuer give it"),
    "whose issuer is a list": (lambda on: jwt_of({**on.claims(), "iss": [on.url]}), "claim iss names no issuer"),
    "tampered with": (tampered, "not signed by its issuer, or was changed since; sign in again"),
    "unsigned": (unsigned, "signed in a way"),
    "signed by the public key as a secret": (confused, "signed in a way"),
    "signed by another key": (lambda on: on.token(key=OTHER_KEY), "not signed"),
    "signed by a key that is not published": (
        lambda on: on.token(key=OTHER_KEY, key_id="two"),
        r"\(kid\) that its issuer does not have",
    ),
    "signed by an algorithm that is not pinned": (
        lambda on: on.token(algorithm="RS512"),
        r"signed in a way that is not accepted \(alg\); have its issuer sign by RS256",
    ),
    "signed by a key of another kind": (lambda on: on.token(key=EC_KEY, algorithm="ES256"), "signed in a way"),
    "with an extension that must be understood": (with_critical_extension, r"extension \(crit\)"),
    "with a key that is a number": (lambda on: jwt_with({"alg": "RS256", "kid": 7}), "header of the token"),
    "without a subject": (lambda on: on.token(sub=None), "has no claim sub; have its issuer give it"),
    "with a subject that is a number": (lambda on: jwt_of({**on.claims(), "sub": 7}), "claim sub is no text; have"),
    "with a name that is a number": (lambda on: jwt_of({**on.claims(), "jti": 7}), "claim jti is no text; have"),
    "with a blank subject": (lambda on: on.token(sub="  "), "claim sub names no user.*1 to 195"),
    "with a subject of two lines": (lambda on: on.token(sub="a\nb"), "claim sub"),
    "with a subject that is too long": (lambda on: on.token(sub="a" * 196), "1 to 195"),
    "no token at all": (lambda on: "abc", "no JWT"),
    "of parts that are none": (lambda on: "a.b.c", "no JWT"),
    "encrypted": (lambda on: f"{encoded({'alg': 'RSA-OAEP', 'enc': 'A256GCM'})}.a.b.c.d", "no JWT that is signed"),
}


def jwt_with(header: dict[str, Any]) -> str:
    return f"{encoded(header)}.{encoded({})}.{encoded({})}"


def jwt_of(claims: dict[str, Any]) -> str:
    return jwt.api_jws.encode(json.dumps(claims).encode(), RSA_KEYS[0], algorithm="RS256", headers={"kid": "one"})


@pytest.mark.parametrize("bad", BAD_TOKENS)
async def test_a_token_that_proves_nobody_is_refused(issuer: Issuer, bad: str) -> None:
    """With what is wrong and nothing of the token; the issuer's name is for the log alone. A good one is accepted."""
    make, says = BAD_TOKENS[bad]
    checked, token = issuers(issuer), make(issuer)

    with pytest.raises(Unauthenticated, match=says) as refusal:
        await checked.principal(token)

    assert refusal.value.details["error"] == "invalid_token"
    assert token not in refusal.value.message
    assert not any(said in refusal.value.message for said in ("other.example", "example.org", "mallory", "soon", "two"))
    assert "corp" not in refusal.value.message
    unread = any(word in refusal.value.message for word in ("claim iss", "no JWT", "crit", "header of"))
    assert getattr(refusal.value, "__notes__", []) == ([] if unread else ["Issuer: corp."])
    assert (await checked.principal(issuer.token())).user == "corp:alice"


async def test_the_longest_subject(issuer: Issuer) -> None:
    """A name has 200 characters, of which the issuer's has its share; a longer one is refused, never cut."""
    assert (await issuers(issuer).principal(issuer.token(sub="a" * 195))).user == f"corp:{'a' * 195}"


async def test_a_key_that_is_too_short_is_not_trusted(issuer: Issuer) -> None:
    """A key that can be broken is refused even where the issuer publishes it."""
    issuer.keys["weak"] = WEAK_KEY
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = issuer.token(key=WEAK_KEY, key_id="weak")
    with pytest.raises(Unauthenticated):
        await issuers(issuer).principal(token)


async def test_a_key_is_for_its_algorithm(issuer: Issuer) -> None:
    """With several pinned, a key is used with the one that it names, or its kind allows."""
    issuer.keys["curve"] = EC_KEY
    checked = issuers(issuer, algorithms=["RS256", "PS256", "ES256"])

    for key, key_id, algorithm in ((None, "one", "PS256"), (None, "one", "RS256"), (EC_KEY, "curve", "ES256")):
        token = issuer.token(key=key, key_id=key_id, algorithm=algorithm)
        assert (await checked.principal(token)).user == "corp:alice"
    with pytest.raises(Unauthenticated, match="cannot be used"):
        await checked.principal(issuer.token(key=EC_KEY, key_id="one", algorithm="ES256"))


async def test_a_key_that_names_its_algorithm_is_used_with_no_other(issuer: Issuer) -> None:
    """Also where another one is pinned, and would fit its kind."""
    key = {**issuer.public("one", RSA_KEYS[0]), "alg": "RS256"}
    issuer.documents["/keys"] = json.dumps({"keys": [key]}).encode()
    checked = issuers(issuer, algorithms=["RS256", "PS256"])

    assert (await checked.principal(issuer.token())).user == "corp:alice"
    with pytest.raises(Unauthenticated, match="another algorithm"):
        await checked.principal(issuer.token(algorithm="PS256"))


async def test_a_token_that_names_no_key(issuer: Issuer) -> None:
    """It is checked by the issuer's only key, and refused where there are several."""
    checked = issuers(issuer)
    assert (await checked.principal(issuer.token(key_id=None))).user == "corp:alice"

    issuer.keys["two"] = RSA_KEYS[1]
    with pytest.raises(Unauthenticated, match="does not say in kid"):
        await issuers(issuer).principal(issuer.token(key_id=None))


# ------------------------------------------------------------ keys


async def test_rotation_is_picked_up_without_a_restart(issuer: Issuer) -> None:
    """A token of a new key is accepted at once; one of a withdrawn key no longer, from then on."""
    checked = issuers(issuer, Clock())
    old = issuer.token()
    await checked.principal(old)
    issuer.keys = {"two": RSA_KEYS[1]}
    new = issuer.token(key=RSA_KEYS[1], key_id="two")

    assert (await checked.principal(new)).user == "corp:alice"
    with pytest.raises(Unauthenticated, match="does not have"):
        await checked.principal(old)


async def test_a_made_up_key_keeps_no_new_one_out(issuer: Issuer) -> None:
    """A key that is made just after somebody sent a key that there is not is found at once all the same."""
    checked = issuers(issuer, Clock())
    with pytest.raises(Unauthenticated):
        await checked.principal(issuer.token(key=OTHER_KEY, key_id="made-up"))
    issuer.keys = {"two": RSA_KEYS[1]}

    assert (await checked.principal(issuer.token(key=RSA_KEYS[1], key_id="two"))).user == "corp:alice"


async def test_many_made_up_keys_delay_a_new_one_and_do_not_condemn_it(issuer: Issuer) -> None:
    """While the issuer is asked no more it is 503 with how long to wait, and by then the token is accepted, also where
    somebody else was faster. One of a key that there is not is known to be bad by then."""
    clock = Clock()
    checked = issuers(issuer, clock, jwks_url=f"{issuer.url}/keys")
    for number in range(BURST + 1):
        with pytest.raises(Unauthenticated):
            await checked.principal(issuer.token(key=OTHER_KEY, key_id=f"{number}"))
    issuer.keys = {"two": RSA_KEYS[1]}
    new, gone = issuer.token(key=RSA_KEYS[1], key_id="two"), issuer.token()
    made_up = issuer.token(key=OTHER_KEY, key_id="another")

    assert (await checked.principal(gone)).user == "corp:alice"
    for token in (new, made_up):
        with pytest.raises(IssuerUnavailable, match="keep the token and try again in 5 s") as refusal:
            await checked.principal(token)
        assert refusal.value.details == {"issuer": "corp", "retry_after": COOLDOWN_SECONDS}
    asked = len(issuer.asked)

    clock.now += 5
    for token in (made_up, gone, issuer.token(key=OTHER_KEY, key_id="another")):
        with pytest.raises(Unauthenticated, match="does not have"):
            await checked.principal(token)
    assert (await checked.principal(new)).user == "corp:alice"
    assert len(issuer.asked) == asked + 1


async def test_an_answer_on_its_way_condemns_no_token(issuer: Issuer) -> None:
    """What the issuer said before a token came says nothing about its key: it is asked again."""
    issuer.answering.clear()
    checked = issuers(issuer, jwks_url=f"{issuer.url}/keys")
    first = asyncio.create_task(checked.principal(issuer.token()))
    await asyncio.to_thread(issuer.was_asked.wait, 10)
    issuer.documents["/keys"] = issuer.document("/keys")
    late = asyncio.create_task(checked.principal(issuer.token(key=RSA_KEYS[1], key_id="two")))
    await asyncio.sleep(0.05)
    issuer.answering.set()
    await first
    del issuer.documents["/keys"]
    issuer.keys = {"two": RSA_KEYS[1]}

    assert (await late).user == "corp:alice"
    assert len(issuer.asked) == 2


async def test_a_withdrawn_key_is_forgotten(issuer: Issuer) -> None:
    """Also where no token of another one comes."""
    clock = Clock()
    checked = issuers(issuer, clock)
    await checked.principal(issuer.token())
    issuer.keys = {"two": RSA_KEYS[1]}

    clock.now += FRESH_SECONDS
    with pytest.raises(Unauthenticated, match="does not have"):
        await checked.principal(issuer.token())


async def test_a_key_that_takes_the_name_of_another(issuer: Issuer) -> None:
    """What counts is the key that is published now."""
    clock = Clock()
    checked = issuers(issuer, clock)
    old, new = issuer.token(), issuer.token(key=RSA_KEYS[1])
    await checked.principal(old)
    issuer.keys = {"one": RSA_KEYS[1]}

    clock.now += FRESH_SECONDS
    assert (await checked.principal(new)).user == "corp:alice"
    with pytest.raises(Unauthenticated, match="not signed"):
        await checked.principal(old)


async def test_unknown_keys_ask_the_issuer_seldom(issuer: Issuer) -> None:
    """However many are made up: the keys at first, a few times at once, and once each time the cooldown is over."""
    clock = Clock()
    checked = issuers(issuer, clock, jwks_url=f"{issuer.url}/keys")
    for round_ in range(3):
        for number in range(20):
            with pytest.raises((Unauthenticated, IssuerUnavailable)):
                await checked.principal(issuer.token(key=OTHER_KEY, key_id=f"{round_}-{number}"))
        clock.now += COOLDOWN_SECONDS

    assert len(issuer.asked) == 1 + BURST + 2


async def test_the_same_unknown_key_asks_once(issuer: Issuer) -> None:
    """Whoever goes on with a token of a key that was withdrawn uses up nothing that others need."""
    clock = Clock()
    checked = issuers(issuer, clock, jwks_url=f"{issuer.url}/keys")
    for _ in range(20):
        with pytest.raises(Unauthenticated):
            await checked.principal(issuer.token(key=OTHER_KEY, key_id="two"))
    assert len(issuer.asked) == 1

    clock.now += COOLDOWN_SECONDS
    issuer.keys = {"two": OTHER_KEY}
    assert (await checked.principal(issuer.token(key=OTHER_KEY, key_id="two"))).user == "corp:alice"


async def test_all_wait_for_one_answer(issuer: Issuer) -> None:
    """Requests that come while the keys are fetched; one that is given up takes the answer from nobody."""
    issuer.answering.clear()
    checked = issuers(issuer, jwks_url=f"{issuer.url}/keys")
    waiting = [asyncio.create_task(checked.principal(issuer.token(sub=f"{number}"))) for number in range(8)]
    await asyncio.to_thread(issuer.was_asked.wait, 10)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    issuer.answering.set()

    found = await asyncio.gather(*waiting[1:])
    assert [one.user for one in found] == [f"corp:{number}" for number in range(1, 8)]
    assert waiting[0].cancelled()
    assert issuer.asked == ["/keys"]


async def test_an_issuer_that_is_down_says_nothing_about_a_token(issuer: Issuer) -> None:
    """What cannot be checked is 503, not 401: a client that got a 401 would throw a good token away."""
    clock = Clock()
    checked = issuers(issuer, clock)
    issuer.down = True
    for _ in range(5):
        with pytest.raises(IssuerUnavailable, match="corp"):
            await checked.principal(issuer.token())
    assert len(issuer.asked) == 1

    issuer.down = False
    clock.now += COOLDOWN_SECONDS
    assert (await checked.principal(issuer.token())).user == "corp:alice"


async def test_known_keys_outlast_an_issuer_that_is_down(issuer: Issuer) -> None:
    """For an hour; a key that is not among them cannot be judged meanwhile, and afterwards none can."""
    clock = Clock()
    checked = issuers(issuer, clock)
    await checked.principal(issuer.token())
    issuer.down = True

    clock.now += FRESH_SECONDS
    assert (await checked.principal(issuer.token())).user == "corp:alice"
    with pytest.raises(IssuerUnavailable):
        await checked.principal(issuer.token(key=RSA_KEYS[1], key_id="two"))
    clock.now += STALE_SECONDS - FRESH_SECONDS - 1
    assert (await checked.principal(issuer.token())).user == "corp:alice"
    clock.now += 1
    with pytest.raises(IssuerUnavailable):
        await checked.principal(issuer.token())


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (b"[]", "JSON object"),
        (b"{}", "no key that signs"),
        (b'{"keys": []}', "no key that signs"),
        (b'{"keys": [{"use": "enc"}]}', "no key that signs"),
        (b"<html>", "Expecting value"),
        (b"\xff", "decode"),
    ],
)
async def test_an_answer_that_holds_no_keys(issuer: Issuer, answer: bytes, cause: str) -> None:
    """It is as none; the log says where and why, and the client does not learn it."""
    issuer.documents["/keys"] = answer
    with pytest.raises(IssuerUnavailable) as refusal:
        await issuers(issuer).principal(issuer.token())
    assert cause not in refusal.value.message
    assert any(f"{issuer.url}/keys" in note and cause in note for note in refusal.value.__notes__)
    del issuer.documents["/keys"]
    assert (await issuers(issuer).principal(issuer.token())).user == "corp:alice"


@pytest.mark.parametrize(
    "changes",
    [{"issuer": "https://login.example.org"}, {"jwks_uri": "http://keys.example.com/jwks"}, {"jwks_uri": None}],
)
async def test_metadata_that_cannot_be_trusted(
    issuer: Issuer, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It must be the issuer's own, and its keys must come over https, or from this machine."""
    issuer.documents[DISCOVERY] = json.dumps({**issuer.metadata(), **changes}).encode()
    with pytest.raises(IssuerUnavailable):
        await issuers(issuer).principal(issuer.token())
    assert issuer.asked == [DISCOVERY]
    assert "another issuer's" in caplog.text or "that can be trusted" in caplog.text


async def test_a_redirection_is_not_followed(issuer: Issuer) -> None:
    """What keys are trusted for is where they were found."""
    issuer.moved = True
    with pytest.raises(IssuerUnavailable):
        await issuers(issuer, jwks_url=f"{issuer.url}/keys").principal(issuer.token())
    assert issuer.asked == ["/keys"]


async def test_a_removed_group_loses_access_with_the_next_token(issuer: Issuer) -> None:
    """Groups are the token's: nothing of an earlier one is kept."""
    checked = issuers(issuer, groups_claim="groups")
    async with Engine(ReferenceStorage(), None) as engine:

        async def call(operation: str, token: str, **payload: Any) -> Any:
            return await engine.call(operation, payload, CallContext(principal=await checked.principal(token)))

        owner = issuer.token(sub="olga")
        await call("project.identify", owner, project="acme")
        await call("project.share", owner, project="acme", group="corp:eng", access="ro")
        memory = (await call("memory.write", owner, project="acme", content="A deed.")).id
        before, after = issuer.token(groups=["eng", "all"]), issuer.token(groups=["all"])

        assert (await call("memory.get", before, id=memory)).content == "A deed."
        with pytest.raises(NotFound):
            await call("memory.get", after, id=memory)
