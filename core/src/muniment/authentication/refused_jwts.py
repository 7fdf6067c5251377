"""What is said of a JWT that is refused: which of its claims is missing or wrong, what is accepted, and what to do.

What a token says is in none of it, and what this server accepts in as much as a holder needs. Whoever is told of the
audiences holds a token that the issuer signed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import jwt
from jwt.exceptions import InvalidJTIError, InvalidSubjectError

from muniment.authentication.claims import invalid, missing
from muniment.authentication.settings import IssuerSettings
from muniment.errors import Unauthenticated

_NAMED = re.compile(r"\((exp|nbf|iat)\)")
"""How the library says which claim of a time it means."""
_PARTS_ENCRYPTED: Final = 5


def unreadable(token: str, error: jwt.PyJWTError) -> Unauthenticated:
    """The refusal of a token of which nothing could be read."""
    if token.count(".") == _PARTS_ENCRYPTED - 1:
        return invalid("The token is no JWT that is signed, but an encrypted one; have its issuer sign it alone.")
    if isinstance(error, jwt.DecodeError):
        return invalid("The token is no JWT; sign in, or send an API token.")
    if "crit" in str(error):
        return invalid("The token needs an extension (crit) that is not known here; have its issuer leave it out.")
    return invalid("The header of the token is wrong, such as kid, which must be a text; have its issuer correct it.")


def of_no_issuer(payload: Mapping[str, Any], accepted: Iterable[str]) -> Unauthenticated:
    """The refusal of a token whose ``iss`` is none of those that are accepted, which anybody may read."""
    if payload.get("iss") is None:
        return missing("iss")
    return invalid(
        f"The token's claim iss names no issuer that is accepted here; sign in at one that is: {', '.join(accepted)}."
    )


def of_another_algorithm(issuer: IssuerSettings) -> Unauthenticated:
    """The refusal of a token that is signed otherwise than its issuer's are."""
    return invalid(
        "The token is signed in a way that is not accepted (alg); have its issuer sign by "
        f"{_any_of(issuer.algorithms)}, or whoever runs this server add its own to algorithms."
    )


def refused(
    error: jwt.PyJWTError, issuer: IssuerSettings, payload: Mapping[str, Any], required: Sequence[str]
) -> Unauthenticated:
    """The refusal of a token of ``issuer`` that the library does not accept; ``payload`` is what it says, unproved."""
    named = _NAMED.search(str(error))
    match error:
        case jwt.ExpiredSignatureError():
            return invalid("The token has expired (exp); sign in again.")
        case jwt.ImmatureSignatureError():
            claim = named[1] if named else "nbf"
            return invalid(
                f"The token is not valid yet ({claim}); check the clocks of its issuer and of this server, or wait."
            )
        case jwt.InvalidAudienceError():
            return invalid(
                "The token's claim aud names no audience that is accepted of its issuer: "
                f"{_any_of(issuer.audience)}; ask for a token for one of those."
            )
        case jwt.MissingRequiredClaimError():
            lacked = [claim for claim in required if not payload.get(claim)]
            return missing(*(lacked or [error.claim]))
        case InvalidSubjectError():
            return invalid("The token's claim sub is no text; have its issuer correct it.")
        case InvalidJTIError():
            return invalid("The token's claim jti is no text; have its issuer correct it.")
        case jwt.InvalidSignatureError():
            return invalid("The token was not signed by its issuer, or was changed since; sign in again.")
        case jwt.InvalidAlgorithmError():
            return of_another_algorithm(issuer)
        case jwt.InvalidKeyError():
            return invalid(
                "The token is signed by a key that is too weak to be trusted; have its issuer make one of 2048 bits."
            )
        case _ if named:
            return invalid(f"The token's claim {named[1]} is no number of seconds; have its issuer correct it.")
        case _:
            return invalid("The token cannot be checked; sign in again.")


def _any_of(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
