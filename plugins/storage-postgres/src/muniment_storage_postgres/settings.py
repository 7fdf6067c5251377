"""What the configuration says about this storage: the URL or ``embedded:``, and the plugin's options.

Options come from the plugin's table of the configuration and, for a server, from the URL's query, where the URL
wins; what is left of the query is libpq's. No password gets into a message: places are shown by host, port and
database.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from muniment.errors import ConfigurationError
from muniment.ports import PluginContext

PLUGIN = "storage-postgres"


class Options(BaseModel):
    """The plugin's options.

    ``pool_size`` connections per process; ``partitions`` of each side table, fixed when the schema is made;
    ``schema`` holds the tables; ``migrate`` allows bringing the schema up to date at start; ``connect_timeout`` and
    ``busy_timeout`` in seconds: for a new connection, and for a free one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pool_size: int = Field(default=8, ge=1, le=200)
    partitions: int = Field(default=32, ge=1, le=1024)
    schema_name: str = Field(default="muniment", alias="schema", pattern=r"^[a-z_][a-z0-9_]{0,62}$")
    migrate: bool = True
    connect_timeout: float = Field(default=10.0, gt=0)
    busy_timeout: float = Field(default=30.0, gt=0)


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
        return Settings(directory=directory.absolute(), options=_options(dict(context.options)))
    url, from_query = _split(context.spec)
    return Settings(url=url, options=_options({**context.options, **from_query}))


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
    except ValueError as error:
        raise _malformed() from error
    ours = {field.alias or name for name, field in Options.model_fields.items()} - {"connect_timeout"}
    rest = urlencode([(key, value) for key, value in query if key not in ours], safe="/", quote_via=quote)
    url = urlunsplit(("postgresql", parts.netloc, parts.path, rest, ""))
    try:
        known = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise _malformed() from error
    options: dict[str, Any] = {key: value for key, value in query if key in ours}
    if known.get("connect_timeout"):
        options["connect_timeout"] = known["connect_timeout"]
    return url, options


def _malformed() -> ConfigurationError:
    return ConfigurationError(
        "storage: the PostgreSQL URL cannot be understood; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with "
        "%-escapes for special characters in the password, and only libpq's parameters after the question mark."
    )


def _options(given: dict[str, Any]) -> Options:
    try:
        return Options.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(
            f"[plugins.{PLUGIN}] {name}: {first['msg'].lower()}; correct this option of the storage."
        ) from error
