"""What the configuration says about this storage: the URL, its database, and the plugin's options.

Options come from the plugin's table of the configuration and from the URL's query, where the URL wins; what is left of
the query is the driver's. No password gets into a message: places are shown by hosts and database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field
from pymongo.common import VALIDATORS
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from muniment import plugin_options
from muniment.errors import ConfigurationError
from muniment.plugin_options import IN_URL, PluginOptions, refuse_unknown
from muniment.ports import PluginContext

PLUGIN = "storage-mongo"
DATABASE = "muniment"
"""The database of a URL that names none."""

_FIXED = {
    "w": "majority",
    "journal": "true",
    "readconcernlevel": "majority",
    "retrywrites": "true",
    "retryreads": "true",
    "readpreference": "primary",
}
"""Options of the driver that a guarantee hangs on, with the only value that they may have."""
_OURS = {
    "maxpoolsize": "pool_size",
    "connecttimeoutms": "connect_timeout",
    "serverselectiontimeoutms": "primary_timeout",
    "sockettimeoutms": "primary_timeout",
    "timeoutms": "primary_timeout",
    "waitqueuetimeoutms": "primary_timeout",
    "wtimeoutms": "primary_timeout",
}
"""Options of the driver that an option of the plugin stands for."""
_MONGODBS_OWN = frozenset({"admin", "config", "local"})
_DATABASE_NAME = re.compile(r"[^/\\. \"$*<>:|?\0]{1,63}")


class Options(PluginOptions):
    """The plugin's options.

    ``pool_size`` connections per process; ``migrate`` allows bringing the schema up to date at start;
    ``connect_timeout`` seconds for a new connection; ``primary_timeout`` seconds that a call waits for a primary, of
    which an election takes about twelve; ``vector_cache_mb`` megabytes of vectors that a process keeps in mind.
    """

    pool_size: int = Field(default=50, ge=1, le=1_000)
    migrate: bool = True
    connect_timeout: float = Field(default=10.0, gt=0)
    primary_timeout: float = Field(default=20.0, gt=0)
    vector_cache_mb: int = Field(default=256, ge=0)


class Settings(BaseModel):
    """Where the database is. ``url`` is the driver's own; ``database`` is the one that is used, whatever it says."""

    model_config = ConfigDict(frozen=True)

    url: str
    database: str
    options: Options = Options()

    @property
    def place(self) -> str:
        """The server as messages name it: ``database "muniment" on host:27017``."""
        hosts = urlsplit(self.url).netloc.rpartition("@")[2]
        return f'database "{self.database}" on {hosts}'


def parse(context: PluginContext) -> Settings:
    """The settings of a configured value. Raises ConfigurationError, naming the setting and never a password."""
    names = Options.names()
    try:
        parts = urlsplit(context.spec)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _malformed() from None
    # A special character of the password would have ended it, and what follows would be shown as a host or an option.
    if parts.fragment or parts.netloc.count("@") > 1 or "@" in parts.path or not parts.netloc.rpartition("@")[2]:
        raise _malformed()
    if "@" in parts.query and not (parts.path and all(key in names or key.lower() in VALIDATORS for key, _ in query)):
        raise _malformed()
    drivers = {*VALIDATORS, *(key for key, _ in query if key.lower() in VALIDATORS)}
    refuse_unknown((key for key, _ in query), IN_URL, names, drivers)
    _refuse_weaker(query)
    rest = urlencode([(key, value) for key, value in query if key not in names], safe="/,:", quote_via=quote)
    url = urlunsplit((parts.scheme, parts.netloc, parts.path or "/", rest, ""))
    _check(url)
    ours = {key: value for key, value in query if key in names}
    options = plugin_options.parse(Options, PLUGIN, context.options, ours)
    return Settings(url=url, database=_database(parts.path), options=options)


def _check(url: str) -> None:
    """Let the driver read the URL; one that is kept in DNS is looked up when it connects."""
    if url.startswith("mongodb+srv:"):
        return
    try:
        parse_uri(url)
    except (PyMongoError, ValueError, KeyError):
        raise _malformed() from None


def _database(path: str) -> str:
    name = unquote(path.removeprefix("/")) or DATABASE
    if not _DATABASE_NAME.fullmatch(name) or len(name.encode()) > 63:
        raise ConfigurationError(
            f"storage: {name!r} cannot be the name of a database of MongoDB; take at most 63 bytes without "
            'spaces and without / \\ . " $ * < > : | ?'
        )
    if name in _MONGODBS_OWN:
        raise ConfigurationError(
            f"storage: {name} is a database of MongoDB's own; name another one before the question mark, such as "
            f"/{DATABASE}, and add authSource={name} after it if that is where the user is kept."
        )
    return name


def _malformed() -> ConfigurationError:
    return ConfigurationError(
        "storage: the MongoDB URL cannot be understood; write "
        "mongodb://USER:PASSWORD@HOST:PORT/DATABASE?replicaSet=NAME, with special characters in the password %-escaped "
        "(@ as %40, / as %2F, : as %3A, # as %23, ? as %3F, % as %25), and only options of the driver and of Muniment "
        "after the question mark."
    )


def _refuse_weaker(query: Iterable[tuple[str, str]]) -> None:
    for key, value in query:
        only = _FIXED.get(key.lower(), value)
        if value.lower() != only.lower():
            raise ConfigurationError(
                f"{key}, set in {IN_URL}, must be {only}: what Muniment promises hangs on it; leave it out."
            )
        if key.lower() in _OURS:
            raise ConfigurationError(
                f"{key}, set in {IN_URL}, is not taken; set {_OURS[key.lower()]} of the storage instead."
            )
