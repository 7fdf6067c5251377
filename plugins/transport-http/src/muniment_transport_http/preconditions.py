"""``If-Match`` and ``If-None-Match`` (RFC 9110, section 13) of every request: what they may say, and what they forbid.

The entity tag of a thing is its version, ``"vN"``. What compares no version takes neither header, since their sender
counts on them. A section that was never written is at version 0: it has the tag ``"v0"``, and ``*`` does not match it.

``If-Match`` with a tag is the operation's own ``version``. What no ``version`` says is asked of the operation itself:
it is called for a version that nothing reaches, which it refuses with the one that is current, if there is a thing that
the caller may change; then it is called for that one, and again if somebody was faster.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from muniment.errors import InvalidInput, VersionConflict
from muniment.limits import PATCH_ATTEMPTS
from muniment.serving.asgi import Scope
from muniment_transport_http.headers import Headers
from muniment_transport_http.problems import RefusedByStatus
from muniment_transport_http.routes import Route

Payload = dict[str, Any]
Call = Callable[[Payload], Awaitable[BaseModel]]

NEVER = 2**31 - 1
"""A version that nothing reaches: what an entity tag that is no version's is compared as."""

MATCH: Final = "If-Match"
NONE_MATCH: Final = "If-None-Match"

_ANY = "*"
_VERSION = re.compile(r'"v(0|[1-9][0-9]{0,9})"')
_OPAQUE = r'"[!#-~\x80-\U0010ffff]*"'
_TAG = re.compile(rf"(W/)?{_OPAQUE}")
_TAGS = re.compile(rf"[ \t,]*(?:W/)?{_OPAQUE}(?:[ \t]*,[ \t,]*(?:W/)?{_OPAQUE})*[ \t,]*")
_EACH = re.compile(_OPAQUE)
_NO_VERSION = 'No version has this tag; a version\'s is v and its number, such as "v1".'
_INSTEAD = {"section.sync": "send the version of each section in the body"}
"""What to do where several things have versions."""


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What a request asks of the version that is current: ``match`` is a tag or ``*``, ``none_match`` holds the tags
    that must not be its, compared weakly, or ``*``. ``lowest`` is the least version of what is changed; None where
    nothing is.
    """

    lowest: int | None = None
    match: str | None = None
    none_match: frozenset[str] | None = None

    def fix(self, payload: Payload) -> None:
        """Say the version of ``If-Match`` in the input of a change. Raises InvalidInput."""
        if self.none_match is not None and payload.get("idempotency_key") is not None:
            raise InvalidInput(NONE_MATCH, "it cannot go with an idempotency key; send If-Match instead")
        if self.lowest is None or self.match in (None, _ANY):
            return
        version = self._matched(self.lowest)
        if payload.setdefault("version", version) != version:
            raise InvalidInput("version", "If-Match says another one; send one of them")

    async def applied(self, payload: Payload, call: Call) -> BaseModel:
        """What the operation answers where they hold. Raises RefusedByStatus for another version, else as ``call``."""
        forbids = self.none_match is not None or (self.match == _ANY and self.lowest == 0)
        if self.lowest is not None and forbids:
            return await self._applied_to_what_is_current(payload, call)
        try:
            return await call(payload)
        except VersionConflict as conflict:
            raise self._stale(conflict) from None

    def has(self, version: int) -> bool:
        """Whether who reads this version has it already. Raises RefusedByStatus where it is not the one asked for."""
        if self.match not in (None, _ANY) and self._matched(1) != version:
            message = f"It is at version {version} now, which If-Match does not name; leave the header out to read it."
            raise _failed(version, f"{self._unmatched} {message}".lstrip())
        return self._lists(version)

    async def _applied_to_what_is_current(self, payload: Payload, call: Call) -> BaseModel:
        sent: Payload = {**payload, "version": NEVER}
        wanted = payload.get("version")
        for attempt in range(PATCH_ATTEMPTS):
            try:
                return await call(sent)
            except VersionConflict as conflict:
                if sent is payload:
                    raise self._stale(conflict) from None
                self._check(current := conflict.current_version)
                if attempt + 1 == PATCH_ATTEMPTS or (isinstance(wanted, int) and wanted != current):
                    raise self._stale(conflict) from None
                pins = wanted is None and self.none_match is not None
                sent = {**payload, "version": current} if pins else payload
        raise AssertionError("an operation is called at least once")

    def _check(self, current: int) -> None:
        """Raises RefusedByStatus for a version that they forbid."""
        if self.match == _ANY and not current:
            message = "It was never written, and If-Match: * asks for what was; leave the header out to write it."
            raise _failed(current, message)
        if self._lists(current):
            message = (
                f"It is at version {current} now, and If-None-Match asks that it not be; leave the header out, or send "
                f'If-Match: "v{current}" to change that version.'
            )
            raise _failed(current, message)

    def _stale(self, conflict: VersionConflict) -> RefusedByStatus:
        """A conflict of versions as what it is of: the precondition or the input."""
        if self.match in (None, _ANY):
            return RefusedByStatus(conflict, conflict.http_status)
        return _failed(conflict.current_version, f"{self._unmatched} {conflict.message}".lstrip())

    def _lists(self, version: int) -> bool:
        """Whether ``If-None-Match`` lists a version; ``*`` is any that something has."""
        tags = self.none_match or frozenset()
        return f'"v{version}"' in tags or (_ANY in tags and version > 0)

    def _matched(self, lowest: int) -> int:
        """The version that the tag of ``If-Match`` stands for."""
        found = _VERSION.fullmatch(self.match or "")
        version = int(found[1]) if found else NEVER
        return version if lowest <= version < NEVER else NEVER

    @property
    def _unmatched(self) -> str:
        """Why no version matches the tag, by its form alone."""
        tag = self.match or ""
        if tag.startswith("W/"):
            return (
                "If-Match compares strongly, so a weak tag never matches (RFC 9110, section 13.1.1); send it without "
                "W/, which a proxy that compresses may have put there."
            )
        return "" if _VERSION.fullmatch(tag) else _NO_VERSION


def preconditions(route: Route, headers: Headers) -> Preconditions:
    """Those that a request says. Raises InvalidInput for what is no entity tag, and where no version is compared."""
    if not route.compares:
        refuse(headers, route.operation.name)
    return Preconditions(route.lowest_version, _match(headers), _none_match(headers))


def refuse(headers: Headers, asked: str) -> None:
    """Take none. Raises InvalidInput."""
    for name in (MATCH, NONE_MATCH):
        if headers.get(name) is not None:
            remedy = _INSTEAD.get(asked, "leave it out")
            raise InvalidInput(name, f"{asked} has no entity tag to compare it with; {remedy}")


def refuse_of(scope: Scope, asked: str) -> None:
    """The same of a request as it came."""
    refuse(Headers(scope["headers"]), asked)


def _match(headers: Headers) -> str | None:
    sent = headers.get(MATCH)
    if sent is None:
        return None
    tag = sent.strip()
    if '",' in tag:
        raise InvalidInput(MATCH, 'it lists several versions; send the one that you read, such as "v3"')
    if tag != _ANY and not _TAG.fullmatch(tag):
        raise InvalidInput(MATCH, 'it is no entity tag; send the one that you read, in its quotes, such as "v1"')
    return tag


def _none_match(headers: Headers) -> frozenset[str] | None:
    sent = headers.get(NONE_MATCH)
    if sent is None:
        return None
    if sent.strip() == _ANY:
        return frozenset({_ANY})
    if not _TAGS.fullmatch(sent):
        raise InvalidInput(
            NONE_MATCH, 'it is no list of entity tags; send * or those that you have, in their quotes, such as "v1"'
        )
    return frozenset(_EACH.findall(sent))


def _failed(current: int, message: str) -> RefusedByStatus:
    return RefusedByStatus(VersionConflict(current, message), 412)
