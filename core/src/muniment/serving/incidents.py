"""What a client learns of an error that is the server's own: an id. The log has the rest under that id.

So it is with what nobody foresaw, and, over a network, with the refusals of the server's own parts: their messages are
for whoever runs it, and hold paths, hosts and settings.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Final, TypeVar, cast

from pydantic import BaseModel

from muniment import errors
from muniment.errors import (
    ConfigurationError,
    EmbedderMismatch,
    EmbedderUnavailable,
    Internal,
    MunimentError,
    StorageUnavailable,
)
from muniment.models import SearchPage

logger = logging.getLogger(__name__)

Record = TypeVar("Record", bound=BaseModel)

_CAUSE = ": "
_AGAIN = "try again in a moment"
_TELL = "tell whoever runs it"
OF_THE_SERVER: Final[Mapping[type[MunimentError], str]] = {
    StorageUnavailable: f"The storage cannot serve this now; {_AGAIN}, with the same idempotency key if you sent one.",
    EmbedderUnavailable: f"The embedder cannot be used now; {_AGAIN}.",
    EmbedderMismatch: f"This server's embedder is not the one that made the stored vectors; {_TELL}.",
    ConfigurationError: f"This server is configured wrongly; {_TELL}.",
}
"""The refusals of the server's own parts, and of kinds of them, with what a client is told instead."""


def shown(error: Exception, doing: str, *, local: bool = False) -> MunimentError:
    """What a client is told of ``error``, raised in ``doing``: a refusal as it is, of what is the server's own an id.

    A refusal whose code is ``internal`` may hold anything in its message and details, so it counts as unforeseen.
    ``local`` says that the client is whoever started the server, who is told of its parts too.
    """
    if not isinstance(error, MunimentError) or error.code == Internal.code:
        return incident(error, doing)
    told = None if local else next((text for kind, text in OF_THE_SERVER.items() if isinstance(error, kind)), None)
    return error if told is None else _withheld(error, told, doing)


def disclosed(record: Record, *, local: bool = False) -> Record:
    """A record as a client gets it: why a search is degraded, without what the embedder said of it (after a colon),
    which the engine has logged."""
    if local or not isinstance(record, SearchPage) or _CAUSE not in (record.degraded or ""):
        return record
    return cast("Record", record.model_copy(update={"degraded": (record.degraded or "").partition(_CAUSE)[0]}))


def incident(error: Exception, doing: str) -> Internal:
    """Log ``error`` with its traceback under a fresh id, which is all that the client learns of it."""
    fresh = _fresh()
    logger.error("internal error %s in %s", fresh, doing, exc_info=error)
    return Internal(f"Something failed inside; the id {fresh} finds it in the server's log.", id=fresh)


def _withheld(refusal: MunimentError, told: str, doing: str) -> MunimentError:
    """Log a refusal of the server's own under a fresh id, and say the general sentence with that id instead."""
    fresh = _fresh()
    logger.warning("%s %s in %s: %s", refusal.code, fresh, doing, refusal.message)
    # A plugin's class may take other arguments; the one of core that it is of has the same code.
    kind = next(one for one in type(refusal).__mro__ if one.__module__ == errors.__name__)
    assert issubclass(kind, MunimentError)
    return kind(f"{told} The id {fresh} finds the cause in the server's log.", id=fresh)


def _fresh() -> str:
    return secrets.token_hex(6)
