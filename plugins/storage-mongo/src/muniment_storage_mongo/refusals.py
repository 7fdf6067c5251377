"""A driver's error as one of Muniment's: one sentence that names the place, the cause and the remedy.

Owns every message about MongoDB. A server's own words are never shown, since they may repeat data; of a failed command
only the code and its name are. Duplicate keys are the callers': they know what the key means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ConnectionFailure,
    DocumentTooLarge,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
)
from pymongo.errors import ConfigurationError as DriverConfigurationError
from pymongo.server_type import SERVER_TYPE

from muniment.errors import ConfigurationError, Internal, MunimentError, PayloadTooLarge, StorageUnavailable
from muniment.ports.refusals import closed

TRANSIENT = "TransientTransactionError"
"""The label of an error after which nothing of a transaction is stored and it may be run again."""
UNKNOWN_COMMIT = "UnknownTransactionCommitResult"
"""The label of an error after which a commit may be sent again."""


class WrongReplicaSet(ConfigurationError):
    """No server is of the replica set that the storage URL names."""


_TRANSACTIONS_NEED_A_SET = 20
_OF_CODE: Mapping[int, tuple[type[MunimentError], str]] = {
    13: (
        ConfigurationError,
        "refuses that to the user of the storage URL, or the URL has none; give it a user with the role readWrite on "
        "the database, and dbAdmin for muniment migrate",
    ),
    18: (
        ConfigurationError,
        "refused the user or its password; correct them in the storage URL, with authSource=DATABASE after its "
        "question mark where another database keeps the user",
    ),
    13297: (
        ConfigurationError,
        "has a database whose name differs from this one in capitals only; write it in the storage URL as it is there",
    ),
    50: (StorageUnavailable, "took too long for an operation; try again"),
    64: (StorageUnavailable, "could not copy a write to a majority of its members in time; read before you repeat it"),
    91: (StorageUnavailable, "is shutting down; try again, and start it if it stays away"),
    100: (StorageUnavailable, "has too few members for a majority; bring the missing ones back"),
    112: (StorageUnavailable, "could not serialise concurrent access; try again"),
    239: (StorageUnavailable, "no longer had the snapshot of a long read; try again"),
    246: (StorageUnavailable, "is changing a collection; try again"),
    251: (StorageUnavailable, "ended a transaction that took too long; nothing of it is stored, try again"),
    8000: (ConfigurationError, "refused the user or its password; correct them in the storage URL"),
    14031: (StorageUnavailable, "has a full disk; free space on its volume, nothing of this write is stored"),
}
_TOO_LARGE = 10334, 17419, 17420


DRIVER_ERRORS = PyMongoError, DocumentTooLarge
"""What the driver raises; a document that is too large is to it one that cannot be encoded, and no error of its own."""


def of_error(error: Exception, place: str) -> MunimentError:
    """An operation that failed, or a server that could not be found for it."""
    if isinstance(error, (ServerSelectionTimeoutError, WaitQueueTimeoutError)):
        return _not_found(error, place)
    if isinstance(error, DocumentTooLarge) or (isinstance(error, OperationFailure) and error.code in _TOO_LARGE):
        return PayloadTooLarge(
            f"MongoDB ({place}) keeps at most 16 MB in one document, and this needs more; split it into several."
        )
    if isinstance(error, BulkWriteError):
        return _of_several(error, place)
    if isinstance(error, OperationFailure):
        return _of_code(error, place)
    if isinstance(error, DriverConfigurationError):
        return of_settings(error, place)
    if isinstance(error, (AutoReconnect, ConnectionFailure)):
        return StorageUnavailable(
            f"The connection to MongoDB ({place}) was lost; if this was a write, whether it is stored is not known: "
            "repeat it with the same idempotency key, or read first."
        )
    if isinstance(error, InvalidOperation):
        return closed()
    return Internal(f"The driver of MongoDB ({place}) failed with {type(error).__name__}.")


def of_settings(error: Exception, place: str) -> ConfigurationError:
    """What the driver does not take of the storage URL, or did not find in DNS."""
    if "DNS" in str(error):
        return ConfigurationError(
            f"DNS has no servers for MongoDB ({place}); correct the host, or write mongodb:// instead of "
            "mongodb+srv:// for a server itself."
        )
    return ConfigurationError(
        f"The driver of MongoDB ({place}) refuses the settings; check the options after the question mark of the "
        "storage URL."
    )


def of_commit(place: str) -> MunimentError:
    """A commit whose outcome nobody could tell in time."""
    return StorageUnavailable(
        f"MongoDB ({place}) did not say in time whether a write is stored; read before you repeat it, or repeat it "
        "with the same idempotency key."
    )


def contended(place: str) -> MunimentError:
    """A transaction that lost every race for its documents."""
    return StorageUnavailable(
        f"Others kept changing the same documents in MongoDB ({place}); nothing of this write is stored, try again."
    )


def unconfirmed(place: str) -> MunimentError:
    """A read for which no primary was long enough in office."""
    return StorageUnavailable(
        f"MongoDB ({place}) changed its primary again and again, and no majority confirmed one in time; try again, and "
        "see that a majority of its members runs."
    )


def of_greeting(greeting: Mapping[str, Any], place: str) -> ConfigurationError | None:
    """Why a server that answers ``hello`` cannot be used: it is no member of a replica set. None where it can."""
    if greeting.get("setName") or greeting.get("msg") == "isdbgrid":
        return None
    if greeting.get("isreplicaset"):
        return _not_initiated(place)
    return ConfigurationError(
        f"MongoDB ({place}) is a standalone server, which has no transactions; make it a replica set of one: start it "
        f"with mongod --replSet rs0 and the options that it has now, then run {_initiate(place)} once."
    )


def _not_initiated(place: str) -> ConfigurationError:
    return ConfigurationError(
        f"MongoDB ({place}) was started for a replica set that was never made; run {_initiate(place)} once."
    )


def _initiate(place: str) -> str:
    """The command that makes the first of the hosts of a place a replica set."""
    host = place.rpartition(" on ")[2].partition(",")[0]
    return f"mongosh mongodb://{host}/ --eval 'rs.initiate()'"


def _of_several(error: BulkWriteError, place: str) -> MunimentError:
    """Several writes in one command, by the first that was refused."""
    if error.details["writeConcernErrors"]:
        return of_commit(place)
    first = error.details["writeErrors"][0]
    return _of_code(OperationFailure(first["errmsg"], first["code"], first), place)


def _of_code(error: OperationFailure, place: str) -> MunimentError:
    code = error.code or 0
    details: Mapping[str, Any] = error.details or {}
    if code == _TRANSACTIONS_NEED_A_SET and "replica set" in str(error):
        return of_greeting({}, place) or Internal()
    if code in _OF_CODE:
        kind, words = _OF_CODE[code]
        return kind(f"MongoDB ({place}) {words}.")
    if error.has_error_label(TRANSIENT) or error.has_error_label("RetryableWriteError"):
        return StorageUnavailable(f"MongoDB ({place}) interrupted the operation; try again.")
    name = details.get("codeName") or "no name"
    return Internal(f"MongoDB ({place}) refused an operation with code {code} ({name}); its log says why.")


def _not_found(error: ConnectionFailure, place: str) -> MunimentError:
    """No server could be used: told apart by what those that answered are."""
    if isinstance(error, WaitQueueTimeoutError):
        return StorageUnavailable(
            f"All connections to MongoDB ({place}) are busy; try again, or raise pool_size of the storage."
        )
    text = str(error)
    if "replica set name" in text:
        return WrongReplicaSet(
            f"MongoDB ({place}) is not of the replica set that the storage URL names; correct replicaSet after its "
            "question mark."
        )
    seen = _server_types(error)
    if SERVER_TYPE.RSGhost in seen:
        return _not_initiated(place)
    if seen & {SERVER_TYPE.RSSecondary, SERVER_TYPE.RSOther, SERVER_TYPE.RSArbiter}:
        return StorageUnavailable(
            f"MongoDB ({place}) has no primary now; try again in a moment, and see that a majority of its members runs."
        )
    return StorageUnavailable(
        f"MongoDB ({place}) cannot be reached: {_cause(text)}; check that the server runs and that the storage URL "
        "names it."
    )


def _server_types(error: ConnectionFailure) -> set[int]:
    """What the servers are that the driver knows of; it tells only by the text of its last look at them."""
    text = str(error)
    kinds = ("RSGhost", "RSSecondary", "RSOther", "RSArbiter")
    return {getattr(SERVER_TYPE, kind) for kind in kinds if f"server_type: {kind}" in text}


def _cause(text: str) -> str:
    """The reason without the driver's advice: ``connection refused``."""
    known = {
        "refused": "connection refused",
        "Connect call failed": "connection refused",
        "timed out": "no answer in time",
        "nodename nor servname": "the host's name is not known",
        "Name or service not known": "the host's name is not known",
        "No address associated": "the host's name is not known",
        "failure in name resolution": "the host's name is not known",
        "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted",
        "SSL": "TLS failed",
    }
    return next((words for sign, words in known.items() if sign in text), "no server answers")
