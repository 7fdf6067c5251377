"""What ``muniment doctor`` finds about who may call over a network."""

from __future__ import annotations

from collections.abc import Sequence

from muniment.authentication.settings import NOBODY_IS_ASKED, AuthSettings
from muniment.authentication.verifier import issuers_of
from muniment.errors import ConfigurationError, IssuerUnavailable
from muniment.hookspecs import Finding

SUBJECT = "authentication"


async def findings(settings: AuthSettings | None) -> Sequence[Finding]:
    """What is configured, and whether each issuer's keys can be had."""
    if settings is None:
        return [Finding(SUBJECT, True, "not configured, so HTTP is served only with --no-auth")]
    if settings is NOBODY_IS_ASKED:
        return [Finding(SUBJECT, True, "none, so whatever reaches this machine's own address is the configured user")]
    accepted = ["API tokens"] if settings.tokens else []
    accepted += [f"tokens of {name}" for name in settings.issuers]
    found = [Finding(SUBJECT, True, f"accepted are {', '.join(accepted)}")]
    try:
        issuers = issuers_of(settings)
    except ConfigurationError as error:
        return [*found, Finding(SUBJECT, False, error.message)]
    for keys in issuers.keys if issuers else ():
        subject, one = f"issuer {keys.name}", settings.issuers[keys.name]
        try:
            count = await keys.fetch()
        except IssuerUnavailable as error:
            remedy = "correct issuer or jwks_url, or see to it that this machine reaches them"
            detail = f"the keys of {one.issuer} cannot be had ({error.code}): {keys.failure}"
            found.append(Finding(subject, False, detail, remedy))
        else:
            signed = ", ".join(one.algorithms)
            held = "1 key" if count == 1 else f"{count} keys"
            found.append(Finding(subject, True, f"{one.issuer}, {held}, signing by {signed}"))
    return found
