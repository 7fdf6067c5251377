"""Credentials of both kinds, as a server accepts them: real API tokens, and JWTs of two issuers on loopback."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from muniment.authentication.settings import AuthSettings
from muniment.authentication.tokens import new_token
from muniment.reference import ReferenceStorage
from tests.matrix.rules import Level, Who

AUDIENCE = "https://memory.example.com/mcp"
KEY_ID = "one"


def _owner(name: str, turned_away: str = "unauthenticated") -> Who:
    return Who(name, "alice", holds=Level.OWN, turned_away=turned_away)


class Credentials(Protocol):
    """One kind. ``settings`` are of a server that accepts it, ``bad`` are the owner's that let nobody in."""

    settings: AuthSettings
    bad: tuple[Who, ...]

    async def token(self, who: Who, storage: ReferenceStorage) -> str:
        """What proves this caller, or is to prove it."""
        ...


class ApiTokens:
    """API tokens, kept by the storage."""

    settings = AuthSettings()
    revoked, expired, unknown = _owner("revoked token"), _owner("expired token"), _owner("unknown token")
    bad = (revoked, expired, unknown)

    async def token(self, who: Who, storage: ReferenceStorage) -> str:
        """A fresh one."""
        scopes = ["read" if who.read_only else "write"]
        scopes += [f"agent={who.agent}"] if who.agent else []
        scopes += ["platform"] if who.platform else []
        groups = frozenset(f"{who.issuer}:{group}" for group in who.groups)
        ends = datetime.now(UTC) - timedelta(hours=1) if who is self.expired else None
        secret, kept = new_token(who.spelled, groups, tuple(scopes), ends)
        if who is not self.unknown:
            await storage.add_token(kept)
        if who is self.revoked:
            await storage.revoke_token(kept.id)
        return secret


class Jwts:
    """Tokens of ``corp`` and ``globex``, whose keys are at ``url``."""

    expired, of_another_key = _owner("expired JWT"), _owner("JWT signed by another issuer's key")
    for_others, without_scope = _owner("JWT for another audience"), _owner("JWT without a scope", "access_denied")
    bad = (expired, of_another_key, for_others, without_scope)

    def __init__(self, url: str, keys: dict[str, rsa.RSAPrivateKey]) -> None:
        self._url = url
        self._keys = keys
        issuers = {
            name: {
                "issuer": f"{url}/{name}",
                "jwks_url": f"{url}/{name}/keys",
                "audience": AUDIENCE,
                "groups_claim": "groups",
                "agent_claim": "agent",
                "read_scope": "m:read",
                "write_scope": "m:write",
                "platform_scope": "m:platform",
            }
            for name in keys
        }
        self.settings = AuthSettings.model_validate({"tokens": False, "issuers": issuers})

    async def token(self, who: Who, storage: ReferenceStorage) -> str:
        """A fresh one."""
        scopes = [] if who is self.without_scope else ["m:read" if who.read_only else "m:write"]
        scopes += ["m:platform"] if who.platform else []
        claims: dict[str, Any] = {
            "iss": f"{self._url}/{who.issuer}",
            "sub": who.user,
            "aud": "https://other.example.com" if who is self.for_others else AUDIENCE,
            "exp": int(time.time()) + (-3_600 if who is self.expired else 3_600),
            "groups": list(who.groups),
            "scope": " ".join(scopes),
        }
        if who.agent is not None:
            claims["agent"] = who.agent
        key = self._keys["globex" if who is self.of_another_key else who.issuer]
        return jwt.encode(claims, key, algorithm="RS256", headers={"kid": KEY_ID})


@contextmanager
def issuing() -> Generator[Jwts]:
    """Issuers whose keys can be fetched while this is entered."""
    keys = {name: rsa.generate_private_key(public_exponent=65537, key_size=2048) for name in ("corp", "globex")}
    published = {f"/{name}/keys": _published(key) for name, key in keys.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = published[self.path]
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Jwts(f"http://127.0.0.1:{http.server_address[1]}", keys)
        finally:
            http.shutdown()
            thread.join()


def _published(key: rsa.RSAPrivateKey) -> bytes:
    public = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig"}]}).encode()
