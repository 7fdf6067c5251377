"""A certified OpenID provider and a server that accepts its tokens: who logs in is let in, and nobody else.

Called with the provider's address and a server's, and how the server speaks: ``mcp`` or ``http``. The server's audience
is AUDIENCE and its issuer is called ``corp``. Exits with 1 at the first thing that is not as it should be.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import json
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
import jwt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from muniment.conformance.target import Refused
from muniment_transport_mcp.conformance_client import call_of, reply_in

AUDIENCE = "https://memory.example"
CALLBACK = "https://client.example/callback"
SCOPES = "memory:read memory:write"
REVISION = "2026-07-28"


class Answer(NamedTuple):
    """What a server said: a status, the challenge where there was one, and the record or the refusal."""

    status: int
    challenge: str
    said: Mapping[str, Any]


Call = Callable[[str | None, str, Mapping[str, Any]], Answer]
"""With a token, an operation and its input."""


class Provider:
    """The provider, as a browser and as whoever runs it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def login(self, user: str, resource: str = AUDIENCE) -> str:
        """The access token of somebody who logs in for a resource."""
        verifier = secrets.token_urlsafe(48)
        asked = {
            "client_id": "desk",
            "response_type": "code",
            "redirect_uri": CALLBACK,
            "scope": f"openid {SCOPES}",
            "resource": resource,
            "code_challenge": _base64(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        with httpx2.Client(timeout=30) as browser:
            response = browser.get(f"{self.url}/auth", params=asked)
            while not (where := response.headers.get("location", "")).startswith(CALLBACK):
                here = str(response.request.url)
                if response.is_redirect:
                    response = browser.get(urljoin(here, where))
                    continue
                response.raise_for_status()
                (action,) = re.findall(r'action="([^"]+)"', response.text)
                (prompt,) = re.findall(r'name="prompt" value="([^"]+)"', response.text)
                filled = {"prompt": prompt, "login": user, "password": "any"}
                response = browser.post(urljoin(here, html.unescape(action)), data=filled)
            granted = {
                "grant_type": "authorization_code",
                "client_id": "desk",
                "code": parse_qs(urlsplit(where).query)["code"][0],
                "redirect_uri": CALLBACK,
                "code_verifier": verifier,
                "resource": resource,
            }
            return browser.post(f"{self.url}/token", data=granted).raise_for_status().json()["access_token"]

    def key(self) -> Mapping[str, Any]:
        """The public key that it signs with."""
        return httpx2.get(f"{self.url}/jwks").raise_for_status().json()["keys"][0]

    def tell(self, what: str, **parameters: str) -> None:
        """Change how it behaves."""
        httpx2.post(f"{self.url}/test/{what}", params=parameters, timeout=30).raise_for_status()


def over_mcp(url: str) -> Call:
    """Calls of a server that speaks MCP."""

    def call(token: str | None, operation: str, payload: Mapping[str, Any]) -> Answer:
        request = call_of(operation, payload, REVISION)
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": REVISION,
            "mcp-method": request["method"],
            "mcp-name": request["params"]["name"],
            **_credentials(token),
        }
        response = httpx2.post(url, json=request, headers=headers, timeout=30)
        try:
            said: Mapping[str, Any] = reply_in(response.text).answer
        except Refused as refused:
            said = {"code": refused.code}
        return Answer(response.status_code, response.headers.get("www-authenticate", ""), said)

    return call


def over_http(url: str) -> Call:
    """Calls of a server that speaks the HTTP of ``muniment-transport-http``."""
    routes = {
        "memory.write": ("POST", "/v1/memories"),
        "memory.get": ("GET", "/v1/memories/{id}"),
        "memory.history": ("GET", "/v1/memories/{id}/history"),
        "project.identify": ("PUT", "/v1/projects/{project}"),
        "project.share": ("PUT", "/v1/projects/{project}/shares/{group}"),
    }

    def call(token: str | None, operation: str, payload: Mapping[str, Any]) -> Answer:
        method, path = routes[operation]
        body = {key: value for key, value in payload.items() if f"{{{key}}}" not in path}
        json_sent = None if method == "GET" else body
        response = httpx2.request(
            method, url + path.format_map(payload), json=json_sent, headers=_credentials(token), timeout=30
        )
        return Answer(response.status_code, response.headers.get("www-authenticate", ""), response.json())

    return call


def _credentials(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _signed(header: Mapping[str, Any], payload: str, secret: bytes | None) -> str:
    """A token by its parts; its signature is empty without a secret."""
    signed = f"{_base64(json.dumps(header).encode())}.{payload}"
    mark = hmac.new(secret, signed.encode(), "sha256").digest() if secret is not None else b""
    return f"{signed}.{_base64(mark)}"


def check(provider: Provider, call: Call, server: str) -> None:
    """All of it. Raises AssertionError, saying what is wrong."""
    ann = provider.login("ann")
    written = _let_in(call(ann, "memory.write", {"content": "The key is under the mat."}))
    seen = _let_in(call(ann, "memory.history", {"id": written["id"]}))
    assert seen["items"][0]["actor"] == "corp:ann", "who logged in is not who wrote"
    print("ok: who logs in is let in, by issuer and subject")

    _let_nobody_in(call, {"nobody's": None, **_forged(provider, ann)}, written["id"])
    _check_metadata(provider, call, server)
    print("ok: nobody else is")

    provider.tell("rotate")
    time.sleep(6)  # The least time between two requests that a key which is not known makes is five seconds.
    _let_in(call(provider.login("ann"), "memory.get", {"id": written["id"]}))
    print("ok: another key of the provider is found without a restart")

    bob = provider.login("bob")
    _let_in(call(bob, "project.identify", {"project": "pilot"}))
    _let_in(call(bob, "project.share", {"project": "pilot", "group": "corp:crew", "access": "ro"}))
    note = {"content": "Take off at nine.", "scope": "project", "project": "pilot"}
    shared = {"id": _let_in(call(bob, "memory.write", note))["id"]}
    provider.tell("groups", user="ann", groups="crew")
    _let_in(call(provider.login("ann"), "memory.get", shared))
    provider.tell("groups", user="ann", groups="")
    left = call(provider.login("ann"), "memory.get", shared)
    assert left.said["code"] == "not_found", f"out of the group, and still: {left}"
    print("ok: a group lets in, and no longer with the next token after it was left")

    provider.tell("lasting", seconds="2")
    short = provider.login("ann")
    _let_in(call(short, "memory.get", {"id": written["id"]}))
    time.sleep(max(0.0, jwt.decode(short, options={"verify_signature": False})["exp"] - time.time()) + 1)
    _let_nobody_in(call, {"an expired": short}, written["id"])
    provider.tell("lasting", seconds="300")
    print("ok: until it expires")


def _forged(provider: Provider, token: str) -> Mapping[str, str]:
    header, payload, mark = token.split(".")
    claims = jwt.decode(token, options={"verify_signature": False})
    other = _base64(json.dumps({**claims, "sub": "bob"}).encode())
    public = jwt.PyJWK(dict(provider.key())).key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    kid = jwt.get_unverified_header(token)["kid"]
    return {
        "another audience's": provider.login("ann", "https://elsewhere.example"),
        "a tampered": f"{header}.{other}.{mark}",
        "an unsigned": _signed({"alg": "none", "typ": "at+jwt"}, payload, None),
        "one signed by the public key": _signed({"alg": "HS256", "typ": "at+jwt", "kid": kid}, payload, public),
    }


def _let_in(answer: Answer) -> Mapping[str, Any]:
    assert answer.status < 300, f"not let in: {answer}"
    assert "code" not in answer.said, f"refused: {answer}"
    return answer.said


def _let_nobody_in(call: Call, tokens: Mapping[str, str | None], memory: str) -> None:
    for kind, token in tokens.items():
        answer = call(token, "memory.get", {"id": memory})
        assert answer.status == 401, f"{kind} token was answered with {answer}"
        assert answer.challenge.startswith("Bearer "), f"{kind} token was given no challenge"
        assert SCOPES in answer.challenge, f"the challenge does not say what to ask for: {answer.challenge}"


def _check_metadata(provider: Provider, call: Call, server: str) -> None:
    """From a challenge a client finds where to log in."""
    challenge = call(None, "memory.get", {"id": "m"}).challenge
    (where,) = re.findall(r'resource_metadata="([^"]+)"', challenge)
    assert where.startswith(f"{urlsplit(server).scheme}://{urlsplit(server).netloc}/"), where
    said = httpx2.get(where).raise_for_status().json()
    assert said["authorization_servers"] == [provider.url], said
    assert said["scopes_supported"] == SCOPES.split(), said


def main() -> int:
    """Run the checks."""
    provider, server, spoken = sys.argv[1:]
    try:
        check(Provider(provider), {"mcp": over_mcp, "http": over_http}[spoken](server), server)
    except AssertionError as wrong:
        print(f"wrong: {wrong}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
