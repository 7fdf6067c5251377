"""A driver's error as one of Muniment's: one sentence that names the place, the cause and the remedy.

Owns every message about PostgreSQL. libpq's own text is shown only for a connection that failed, where it names hosts
and causes but never the password; of a failed statement only the SQLSTATE is shown, since its text may repeat data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import psycopg

from muniment.errors import ConfigurationError, Internal, MunimentError, StorageUnavailable

_NO_PASSWORD = "no password"
"""In the place of a SQLSTATE: libpq gives up before the server answers."""

_OF_STATE: Mapping[str, tuple[type[MunimentError], str]] = {
    "53100": (StorageUnavailable, "has a full disk; free space on its volume, nothing of this write is stored"),
    "53200": (StorageUnavailable, "is out of memory; give it more, or lower pool_size"),
    "53300": (
        StorageUnavailable,
        "has no free connection; raise max_connections on the server or lower pool_size of the storage",
    ),
    "57P01": (StorageUnavailable, "was shut down, or ended this connection; try again, and start it if it stays away"),
    "57P02": (StorageUnavailable, "crashed or was killed; try again in a moment, and start it if it stays away"),
    "57P03": (StorageUnavailable, "is starting up or shutting down; try again in a moment"),
    "57014": (StorageUnavailable, "cancelled the statement, by a time limit or an administrator; try again"),
    "55P03": (StorageUnavailable, "could not get a lock in time; try again"),
    "40001": (StorageUnavailable, "could not serialise concurrent access; try again"),
    "40P01": (StorageUnavailable, "broke a deadlock; try again"),
    "25006": (
        ConfigurationError,
        "is read-only, perhaps a standby; point the storage URL at the primary server",
    ),
    "42501": (
        ConfigurationError,
        "refuses the user of the storage URL that right; grant it, or use the owner of the schema",
    ),
    "28P01": (ConfigurationError, "refused the password; correct it in the storage URL"),
    _NO_PASSWORD: (
        ConfigurationError,
        "asks for a password and none is given; write postgresql://USER:PASSWORD@HOST/DATABASE as the storage URL, or "
        "give it by PGPASSWORD or ~/.pgpass",
    ),
    "28000": (ConfigurationError, "refused the user; correct the storage URL or the server's pg_hba.conf"),
    "3D000": (ConfigurationError, "is not there; create it with createdb, or correct the storage URL"),
    "42P01": (ConfigurationError, "lacks tables of Muniment; run muniment migrate"),
    "3F000": (ConfigurationError, "lacks the schema of Muniment; run muniment migrate"),
    "42703": (ConfigurationError, "has other tables than this release needs; run muniment migrate"),
    "42704": (ConfigurationError, "lacks the extension vector; run CREATE EXTENSION vector in it"),
}
_OF_CLASS: Mapping[str, tuple[type[MunimentError], str]] = {
    "08": (StorageUnavailable, "lost the connection; check that it runs and try again"),
    "53": (StorageUnavailable, "is out of resources; look at the server's log"),
    "57": (StorageUnavailable, "interrupted the statement; try again"),
    "58": (StorageUnavailable, "has trouble with its files; look at the server's log"),
}
# Errors of a connection attempt carry no SQLSTATE, only the server's English words.
_OF_WORDS: tuple[tuple[str, str], ...] = (
    ("password authentication failed", "28P01"),
    ("no password supplied", _NO_PASSWORD),
    ("no pg_hba.conf entry", "28000"),
    ("role .* does not exist", "28000"),
    ("authentication failed", "28000"),
    ("database .* does not exist", "3D000"),
    ("too many clients", "53300"),
    ("too many connections", "53300"),
    ("remaining connection slots", "53300"),
    ("starting up|shutting down|recovery mode|not yet accepting", "57P03"),
    ("permission denied for database", "42501"),
)


def of_statement(error: psycopg.Error, place: str) -> MunimentError:
    """A statement that failed."""
    # Of a server whose first process was killed the others end as if it had been shut down.
    killed = error.sqlstate == "57P01" and "postmaster exit" in str(error)
    known = _known("57P02" if killed else error.sqlstate, place)
    if known is not None:
        return known
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and not error.sqlstate:
        return StorageUnavailable(
            f"The connection to PostgreSQL ({place}) was lost; if this was a write, whether it is stored is not known: "
            "read before you repeat it."
        )
    return Internal(f"PostgreSQL ({place}) refused a statement with SQLSTATE {error.sqlstate}; its log says why.")


def of_connection(error: psycopg.Error, place: str) -> MunimentError:
    """A connection that could not be made."""
    text = str(error)
    state = error.sqlstate or next((state for words, state in _OF_WORDS if re.search(words, text)), None)
    known = _known(state, place)
    if known is not None:
        return known
    return StorageUnavailable(
        f"PostgreSQL ({place}) cannot be reached: {_cause(text)}; check that the server runs and that the storage URL "
        "names it."
    )


def busy(place: str) -> MunimentError:
    """No connection became free."""
    return StorageUnavailable(
        f"All connections to PostgreSQL ({place}) are busy; try again, or raise pool_size of the storage."
    )


def without_extension(place: str, reason: str) -> ConfigurationError:
    """The extension ``vector`` is not in the database and could not be made."""
    return ConfigurationError(f"PostgreSQL ({place}) {reason}")


def _known(state: str | None, place: str) -> MunimentError | None:
    known = _OF_STATE.get(state or "") or _OF_CLASS.get((state or "")[:2])
    return known[0](f"PostgreSQL ({place}) {known[1]}.") if known else None


def _cause(text: str) -> str:
    """The last thing that libpq says, on one line: ``connection refused``."""
    lines = [line.strip() for line in text.splitlines() if "failed:" in line or "could not" in line]
    last = (lines or text.strip().splitlines() or ["no answer"])[-1]
    return " ".join(last.rpartition("failed: ")[2].split()).rstrip(".").removeprefix("FATAL: ").strip() or "no answer"
