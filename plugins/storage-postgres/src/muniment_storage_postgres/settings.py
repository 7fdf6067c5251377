"""What the configuration says about this storage: the URL or ``embedded:``, and the plugin's options.

Options come from the plugin's table of the configuration and, for a server, from the URL's query, where the URL
wins; what is left of the query is libpq's. No password gets into a message: places are shown by host, port and
database.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from pydantic import BaseModel, ConfigDict, Field

from muniment import plugin_options
from muniment.errors import ConfigurationError
from muniment.plugin_options import IN_URL, PluginOptions, refuse_unknown
from muniment.ports import PluginContext

PLUGIN = "storage-postgres"


class Options(PluginOptions):
    """The plugin's options.

    ``pool_size`` connections per process; ``partitions`` of each side table, fixed when the schema is made;
    ``schema`` holds the tables; ``migrate`` allows bringing the schema up to date at start; ``connect_timeout`` and
    ``busy_timeout`` in seconds: for a new connection, and for a free one. ``as_root`` allows root to start an embedded
    server outside containers. ``approximate_from`` is how many passages an owner or a project must have for
    ``optimize`` to build an approximate index; ``search_cache_mb`` megabytes of words and vectors that a process
    keeps in mind.
    """

    pool_size: int = Field(default=8, ge=1, le=200)
    partitions: int = Field(default=32, ge=1, le=1024)
    schema_name: str = Field(default="muniment", alias="schema", pattern=r"^[a-z_][a-z0-9_]{0,62}$")
    migrate: bool = True
    connect_timeout: float = Field(default=10.0, gt=0)
    busy_timeout: float = Field(default=30.0, gt=0)
    as_root: bool = False
    approximate_from: int = Field(default=10_000, ge=1)
    search_cache_mb: int = Field(default=256, ge=0)


class Settings(BaseModel):
    """Where the database is. Exactly one of ``url`` (libpq's own) and ``directory`` (embedded) is set."""

    model_config = ConfigDict(frozen=True)

    url: str | None = None
    directory: Path | None = None
    options: Options = Options()


def parse(context: PluginContext) -> Settings:
    """The settings of a configured value. Raises ConfigurationError, naming the setting and never a password."""
    scheme, _, rest = context.spec.partition(":")
    if scheme == "embedded":
        directory = Path(rest).expanduser() if rest else context.data_dir / "postgres"
        return Settings(directory=directory.absolute(), options=plugin_options.parse(Options, PLUGIN, context.options))
    url, from_query = _split(context.spec)
    return Settings(url=url, options=plugin_options.parse(Options, PLUGIN, context.options, from_query))


def place(url: str) -> str:
    """A server as messages name it: ``database "d" on host:port``, or a bare word where the URL says nothing."""
    parts = conninfo_to_dict(url)
    host, port, database = (parts.get(key) for key in ("host", "port", "dbname"))
    where = f"{host or 'the local socket'}{f':{port}' if port else ''}"
    return f'database "{database}" on {where}' if database else str(where)


def _split(spec: str) -> tuple[str, dict[str, Any]]:
    """The URL for libpq, and the options of ours that its query held."""
    try:
        parts = urlsplit(spec)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        if "," not in parts.netloc:
            _ = parts.port
    except ValueError:
        raise _malformed() from None
    libpq = {option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl"}
    ours = Options.names() - {"connect_timeout"}
    if _is_torn(parts, all(key in ours | libpq for key, _ in query)):
        raise _malformed()
    refuse_unknown((key for key, _ in query), IN_URL, ours, libpq)
    rest = urlencode([(key, value) for key, value in query if key not in ours], safe="/", quote_via=quote)
    url = urlunsplit(("postgresql", parts.netloc, parts.path, rest, ""))
    try:
        known = conninfo_to_dict(url)
    except ProgrammingError:
        raise _malformed() from None
    options: dict[str, Any] = {key: value for key, value in query if key in ours}
    if known.get("connect_timeout"):
        options["connect_timeout"] = known["connect_timeout"]
    return url, options


def _is_torn(parts: SplitResult, known: bool) -> bool:
    """Whether the URL looks as if a special character of the password had ended it, so that what follows would be taken
    for a host, a database or an option, and shown as one. ``known``: the query has only names of options."""
    if parts.fragment or parts.netloc.count("@") > 1 or "@" in parts.path:
        return True
    return "@" in parts.query and (not known or not (parts.path or "@" in parts.netloc))


def _malformed() -> ConfigurationError:
    return ConfigurationError(
        "storage: the PostgreSQL URL cannot be understood; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with "
        "special characters in the password %-escaped (@ as %40, / as %2F, : as %3A, # as %23, ? as %3F, % as %25), "
        "and only parameters of libpq and of Muniment after the question mark."
    )
