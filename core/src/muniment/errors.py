"""Every refusal that Muniment gives: one base class, one subclass per code.

A refusal names the thing, the limit and the remedy. The class docstring is the default message; ``code`` is
stable and is what programs compare; ``details`` carries the machine-readable part. How a surface shows an
error is the transport's; how a library's error becomes one of these is the plugin's.
"""

from __future__ import annotations

from typing import ClassVar

Detail = str | int | float | bool | None
Details = dict[str, Detail]


class MunimentError(Exception):
    """Muniment refused or failed."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str | None = None, **details: Detail) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.details: Details = details
        super().__init__(self.message)

    def body(self) -> dict[str, Detail | Details]:
        """The error as data: ``code``, ``message`` and, where there are any, ``details``."""
        body: dict[str, Detail | Details] = {"code": self.code, "message": self.message}
        if self.details:
            body["details"] = dict(self.details)
        return body


class InvalidInput(MunimentError):
    """The input has a field of the wrong shape, type or size; correct the field that is named."""

    code = "invalid_input"
    http_status = 422

    def __init__(self, field: str, problem: str, **details: Detail) -> None:
        self.field = field
        super().__init__(f"{field}: {problem}", field=field, **details)


class ContentTooLong(MunimentError):
    """The content would be longer than a memory may be; split it into several memories."""

    code = "content_too_long"
    http_status = 422


class ContentEmpty(MunimentError):
    """The content would be empty; use memory.delete to remove a memory."""

    code = "content_empty"
    http_status = 422


class PatchNotFound(MunimentError):
    """old_string does not occur in the memory; read it again and copy the fragment exactly."""

    code = "patch_not_found"
    http_status = 422


class PatchAmbiguous(MunimentError):
    """old_string occurs more than once; send a longer fragment that occurs exactly once."""

    code = "patch_ambiguous"
    http_status = 422


class PatchNoChange(MunimentError):
    """old_string and new_string are the same; nothing would change."""

    code = "patch_no_change"
    http_status = 422


class VersionConflict(MunimentError):
    """The thing was changed since it was read; read it again and repeat the edit on its current version."""

    code = "version_conflict"
    http_status = 409

    def __init__(self, current_version: int, message: str | None = None) -> None:
        self.current_version = current_version
        super().__init__(
            message or f"It is at version {current_version} now; read it again and repeat the edit on that version.",
            current_version=current_version,
        )


class IdempotencyConflict(MunimentError):
    """This idempotency key was used with another request; use a fresh key for another one."""

    code = "idempotency_conflict"
    http_status = 422


class UnknownProject(MunimentError):
    """No such project; register it with project.identify, or correct its key."""

    code = "unknown_project"
    http_status = 404


class NotFound(MunimentError):
    """There is no such thing that you may read; check the id, or list what there is."""

    code = "not_found"
    http_status = 404


class AccessDenied(MunimentError):
    """You may read this but not change it; ask its owner for read-write access."""

    code = "access_denied"
    http_status = 403


INVALID_TOKEN = "invalid_token"
INSUFFICIENT_SCOPE = "insufficient_scope"
"""What RFC 6750 (section 3.1) calls the two ways in which credentials can be wrong, as ``details["error"]``."""


class SectionReadOnly(MunimentError):
    """This section is written by the platform alone; write to another one."""

    code = "section_read_only"
    http_status = 403


class SectionAppendOnly(MunimentError):
    """This section only grows; append to it instead of replacing it."""

    code = "section_append_only"
    http_status = 403


class Unauthenticated(MunimentError):
    """No valid credentials; sign in, or send a valid token."""

    code = "unauthenticated"
    http_status = 401


class IssuerUnavailable(MunimentError):
    """Credentials cannot be checked now, since their issuer's keys cannot be had; try again in a moment."""

    code = "issuer_unavailable"
    http_status = 503


class PayloadTooLarge(MunimentError):
    """The request is larger than the server takes; send less at once."""

    code = "payload_too_large"
    http_status = 413


class RateLimited(MunimentError):
    """Too many requests; wait and try again."""

    code = "rate_limited"
    http_status = 429

    @property
    def retry_after(self) -> int:
        """How many seconds to wait, which ``details`` say where it is more than one."""
        said = self.details.get("retry_after")
        return said if isinstance(said, int) else 1


class RequestTimedOut(MunimentError):
    """The request did not come whole in time; send it again, faster."""

    code = "request_timed_out"
    http_status = 408


class ShuttingDown(MunimentError):
    """The server is ending and has given this call up; look what it did before you repeat it."""

    code = "shutting_down"
    http_status = 503


class CapabilityNotSupported(MunimentError):
    """This backend does not have the capability that the call needs; choose a backend that has it."""

    code = "capability_not_supported"
    http_status = 501


class EmbedderMismatch(MunimentError):
    """The embedder is not the one that made the stored vectors; restore it, or give the new one its own name."""

    code = "embedder_mismatch"
    http_status = 503


class EmbedderUnavailable(MunimentError):
    """The embedder cannot be used now; text search works, and vectors are made when it is back."""

    code = "embedder_unavailable"
    http_status = 503


class StorageUnavailable(MunimentError):
    """The storage cannot be reached now; check that it runs, and try again."""

    code = "storage_unavailable"
    http_status = 503


class ConfigurationError(MunimentError):
    """The configuration is wrong; correct the setting that is named."""

    code = "configuration_error"
    http_status = 503


class PluginError(ConfigurationError):
    """A plugin that the configuration names cannot be used; the message says why and what to do."""

    code = "plugin_error"


class Internal(MunimentError):
    """Something failed inside; the id finds it in the server's log."""

    code = "internal"
    http_status = 500
