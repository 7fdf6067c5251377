"""What a client learns of an error that nobody foresaw: an id. The log has the rest under that id."""

from __future__ import annotations

import logging
import secrets

from muniment.errors import Internal, MunimentError

logger = logging.getLogger(__name__)


def shown(error: Exception, doing: str) -> MunimentError:
    """What a client is told of ``error``, raised in ``doing``: a refusal as it is, of all else an id.

    A refusal whose code is ``internal`` may hold anything in its message and details, so it counts as unforeseen.
    """
    if isinstance(error, MunimentError) and error.code != Internal.code:
        return error
    return incident(error, doing)


def incident(error: Exception, doing: str) -> Internal:
    """Log ``error`` with its traceback under a fresh id, which is all that the client learns of it."""
    fresh = secrets.token_hex(6)
    logger.error("internal error %s in %s", fresh, doing, exc_info=error)
    return Internal(f"Something failed inside; the id {fresh} finds it in the server's log.", id=fresh)
