"""Configuration: flags over ``MUNIMENT_*`` variables over a TOML file over defaults; unknown keys are refused.

What a value means is its reader's: a plugin parses its own scheme and checks its own ``[plugins.NAME]``
table. A refusal is a ``ConfigurationError`` of one sentence: the key, where it was set, and the remedy, the same for
every table; never the value, which may be a secret.
"""

from __future__ import annotations

import difflib
import getpass
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import platformdirs
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PrivateAttr, StringConstraints, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from muniment import local_paths
from muniment.authentication.settings import NOBODY_IS_ASKED, AuthSettings
from muniment.errors import ConfigurationError
from muniment.limits import PROJECT_KEY_PATTERN
from muniment.models import Agent, Name, refuse_control_characters
from muniment.serving.settings import LimitSettings

PREFIX = "MUNIMENT_"
SUITE_PREFIX = "MUNIMENT_CONFORMANCE_"
"""Variables that begin so belong to the conformance suite."""

FILE_NAME = "muniment.toml"

_PASSWORD_IN_URL = re.compile(r"(://[^\s:/@]*:)\S*@")
_SECRET = r"\b\w*(?:password|secret|token|api_?key)\w*"
_SECRET_PARAMETER = re.compile(rf"(?i)({_SECRET}\s*=\s*)(?:'[^']*'|[^&\s]+)")
_SECRET_PROPERTY = re.compile(rf"(?i)({_SECRET}:)[^\s:&,][^&,\s]*")
"""One of several in one parameter: ``A_TOKEN:secret,B:c``."""
_API_TOKEN = re.compile(r"(muniment_)[A-Za-z0-9_-]{43,}")
_JWT = re.compile(r"(?<![\w-])((?>[\w-]*?eyJ))[\w-]*+(?:\.[\w-]*+){2,4}", re.ASCII)
"""Of three parts, or of five where it is encrypted. Looked for once in each run of its characters."""
_SECRET_NAME = re.compile(r"(?i)(?:password|secret|token|key|credential)(?!.*_env$)")
"""``api_key_env`` names a variable, which whoever looks for a mistake wants to see."""


def redact(value: str) -> str:
    """``value`` without its passwords: of a URL, of a ``password=`` parameter, of a ``token:`` within a parameter; and
    without API tokens and JWTs."""
    shown = _SECRET_PARAMETER.sub(r"\1***", _PASSWORD_IN_URL.sub(r"\1***@", value))
    return _JWT.sub(r"\1***", _API_TOKEN.sub(r"\1***", _SECRET_PROPERTY.sub(r"\1***", shown)))


def redact_named(name: str, value: str) -> str:
    """``value`` as ``redact`` gives it; nothing of it where ``name`` is that of a secret."""
    return "***" if _SECRET_NAME.search(name) else redact(value)


def default_data_dir() -> Path:
    """The user's data directory; root's lies outside its home, which no other system user can enter."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/muniment")
    return platformdirs.user_data_path("muniment", appauthor=False)


def default_user() -> str:
    """The operating system's name of who runs this, by its id where there is one, not by a variable."""
    try:
        import pwd
    except ImportError:
        return getpass.getuser()
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


def _has_scheme(value: str) -> str:
    if not re.match(r"^[A-Za-z][A-Za-z0-9+.-]*:", value):
        raise ValueError("must begin with a scheme and a colon, such as embedded: or postgresql://host/database")
    return value


def _has_scheme_or_none(value: str) -> str:
    if value != "none" and not re.match(r"^[A-Za-z][A-Za-z0-9+.-]*:", value):
        raise ValueError("must be none, or begin with a scheme and a colon, such as local:all-MiniLM-L6-v2")
    return value


def _names(value: object) -> object:
    """A variable or a flag holds names separated by commas; a file holds a list."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _agent(value: object) -> object:
    return value if value is None or isinstance(value, Agent) else Agent.parse(value)


def _auth(value: object) -> object:
    """``none`` is by name; a variable holds what the table would, as JSON."""
    if not isinstance(value, str):
        return value
    if value == "none":
        return NOBODY_IS_ASKED
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"must be none, or a JSON object; or use an [auth] table in {FILE_NAME}") from None


def _limits(value: object) -> object:
    """A variable holds what the table would, as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"must be a JSON object; or use a [limits] table in {FILE_NAME}") from None


def _directory(value: object) -> object:
    if not isinstance(value, str | Path):
        raise ValueError("must be a text; correct it")
    text = str(value)
    if not text.strip():
        raise ValueError("is blank; give a directory, or leave it out")
    refuse_control_characters(text)
    return value


def _seconds(value: object) -> object:
    """A truth value would count as one second."""
    if isinstance(value, bool):
        raise ValueError("must be a number of seconds, such as 10; correct it")
    return value


def _absolute(value: Path) -> Path:
    return Path(local_paths.absolute(str(value)))


class Settings(BaseSettings):
    """The configuration, whole. ``load`` reads it; ``origin`` says where a value came from."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, validate_default=False
    )

    config: Path | None = Field(default=None, description="the TOML file to read instead of the usual ones")
    storage: Annotated[str, AfterValidator(_has_scheme), AfterValidator(local_paths.absolute_in)] = Field(
        default="embedded:", description="where memories are kept"
    )
    embedder: Annotated[str, AfterValidator(_has_scheme_or_none), AfterValidator(local_paths.absolute_in)] = Field(
        default="local:all-MiniLM-L6-v2", description="what turns text into vectors, or none"
    )
    data_dir: Annotated[Path, BeforeValidator(_directory), AfterValidator(_absolute)] = Field(
        default_factory=default_data_dir, description="the directory for what plugins keep on this machine"
    )
    user: Name = Field(default_factory=default_user, description="whose memories a local client reads and writes")
    groups: Annotated[frozenset[Name], NoDecode, BeforeValidator(_names)] = Field(
        default=frozenset(), description="the groups of a local client's user"
    )
    project: Annotated[str, StringConstraints(pattern=PROJECT_KEY_PATTERN)] | None = Field(
        default=None, description="the project that a write without a scope goes to"
    )
    agent: Annotated[Agent | None, NoDecode, BeforeValidator(_agent)] = Field(
        default=None, description="the agent instance that a local client is, as NAME/INSTANCE"
    )
    platform: bool = Field(default=False, description="whether a local client is the platform that agents run on")
    memory_cue: bool = Field(
        default=False, description="whether the content of an agent's event begins with a line on new exchanges"
    )
    auth: Annotated[AuthSettings | None, NoDecode, BeforeValidator(_auth)] = Field(
        default=None, description="who may call over a network, or none for whoever reaches this machine's own address"
    )
    limits: Annotated[LimitSettings, NoDecode, BeforeValidator(_limits)] = Field(
        default=LimitSettings(), description="how often and how much each caller over a network may ask"
    )
    embed_timeout: Annotated[float, BeforeValidator(_seconds), Field(gt=0, le=600, allow_inf_nan=False)] = Field(
        default=10.0, description="seconds that a call waits for the embedder before it goes on without"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning", description="how much is logged, to standard error"
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="how a line of the log is written: for people, or as a JSON object"
    )
    plugins: dict[str, dict[str, Any]] = Field(
        default_factory=dict[str, dict[str, Any]], description="a table of its own for each plugin, by name"
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict[str, str])
    _source: Path | None = PrivateAttr(default=None)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then variables, then the file that either of them names, or the usual one."""
        return init_settings, env_settings, _File(settings_cls)

    @classmethod
    def load(cls, flags: Mapping[str, Any] | None = None) -> Settings:
        """The settings; ``flags`` are those given on the command line, by key. Raises ConfigurationError."""
        given = {key: value for key, value in (flags or {}).items() if value is not None}
        _refuse_empty(given)
        variables = _variables()
        file = _file(given, variables)
        content = {} if file is None else _read(file)
        origins = {key: str(file) for key in content} | variables | {key: _flag(key) for key in given}
        _refuse_unknown(given, variables, content, file)
        try:
            settings = cls(**given)
        except ValidationError as error:
            raise _refusal(error, cls, origins) from None
        except (SettingsError, RecursionError):
            raise ConfigurationError(
                f"plugins, set by {PREFIX}PLUGINS, must be a JSON object of objects; correct it, or use "
                f"[plugins.NAME] tables in {FILE_NAME}."
            ) from None
        if settings.agent is not None and settings.platform:
            raise ConfigurationError(
                f"agent ({origins['agent']}) and platform ({origins['platform']}) are both set, and an agent that "
                "were the platform could write what only the platform records; remove one of them.",
                key="platform",
            )
        settings._origins = origins
        settings._source = file
        return settings

    @property
    def file(self) -> Path | None:
        """The TOML file that was read, if one was."""
        return self._source

    def origin(self, key: str) -> str:
        """Where the value of ``key`` was set: a flag, a variable, a file, or ``default``."""
        return self._origins.get(key, "default")

    def shown(self) -> Mapping[str, str]:
        """Every key's value as a report may show it, secrets redacted."""
        plain = {key: getattr(self, key) for key in keys() if key not in _TABLES}
        shown = {key: _plain(value) for key, value in plain.items()}
        if self.auth is None or self.auth is NOBODY_IS_ASKED:
            shown["auth"] = "none" if self.auth else ""
        else:
            shown |= {f"auth.{key}": redact(value) for key, value in self.auth.shown().items()}
        shown |= {f"limits.{key}": value for key, value in self.limits.shown().items()}
        for name, options in sorted(self.plugins.items()):
            for key, value in sorted(options.items()):
                shown[f"plugins.{name}.{key}"] = redact_named(key, str(value))
        return shown


_TABLES = ("config", "auth", "limits", "plugins")
"""The keys that a report shows otherwise than as one value, or not at all."""


class _File(TomlConfigSettingsSource):
    """The TOML file, chosen once flags and variables are known."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls, toml_file=None)

    def __call__(self) -> dict[str, Any]:
        named = self.current_state.get("config")
        file = Path(named) if named else _usual_file()
        return {} if file is None else _read(file)


def keys() -> tuple[str, ...]:
    """Every key of the configuration."""
    return tuple(Settings.model_fields)


def variable(key: str) -> str:
    """The variable that sets ``key``."""
    return PREFIX + key.upper()


_FLAGS = {"groups": "--group", "auth": "--no-auth"}


def _flag(key: str) -> str:
    return _FLAGS.get(key, f"--{key.replace('_', '-')}")


def _plain(value: object) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value)))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, Agent):
        return f"{value.name}/{value.instance}"
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else redact(str(value))


def _variables() -> dict[str, str]:
    """The variables of the environment that are meant for the configuration, by key."""
    names = (name for name, value in os.environ.items() if name.upper().startswith(PREFIX) and value)
    return {
        name.upper().removeprefix(PREFIX).lower(): name for name in names if not name.upper().startswith(SUITE_PREFIX)
    }


def _file(given: Mapping[str, Any], variables: Mapping[str, str]) -> Path | None:
    if "config" in given:
        return Path(given["config"])
    if "config" in variables:
        return Path(os.environ[variables["config"]])
    return _usual_file()


def _usual_file() -> Path | None:
    places = (local_paths.working_directory(), platformdirs.user_config_path("muniment", appauthor=False))
    instead = f"set HOME to its own directory, or name the file with --config or {PREFIX}CONFIG"
    return next((path for place in places if local_paths.exists(path := place / FILE_NAME, instead=instead)), None)


def _read(file: Path) -> dict[str, Any]:
    try:
        _refuse_endless(file)
        content = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigurationError(f"There is no file {file}; correct --config or {PREFIX}CONFIG.") from None
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read ({error.strerror}); make it readable.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file} is not UTF-8; save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file} is not valid TOML: {error}; correct that place.") from None
    except RecursionError:
        raise ConfigurationError(f"{file} is nested too deeply to be read; write what it says with less.") from None
    except ValueError:
        raise ConfigurationError(f"{file} holds a number with too many digits to be read; correct it.") from None
    return {key: _beside(file, key, value) for key, value in content.items()}


def _refuse_endless(file: Path) -> None:
    """Raises ConfigurationError for what may be waited on for ever, such as a pipe; the null device is like a file."""
    found = file.stat()
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        return
    if not stat.S_ISCHR(found.st_mode) or found.st_rdev != Path(os.devnull).stat().st_rdev:
        raise ConfigurationError(f"{file} is no file but a pipe, a socket or a device; name a file.")


def _beside(file: Path, key: str, value: object) -> object:
    """A path in a file is relative to the file's directory: who reads the file may be started anywhere."""
    if not isinstance(value, str) or not value or key not in ("storage", "embedder", "data_dir"):
        return value
    locate = local_paths.absolute if key == "data_dir" else local_paths.absolute_in
    return locate(value, file.parent)


def _refuse_empty(given: Mapping[str, Any]) -> None:
    for key, value in given.items():
        if value == "":
            raise ConfigurationError(f"{_flag(key)} is empty; give it a value, or leave it out.", key=key)


def _refuse_unknown(
    given: Iterable[str], variables: Mapping[str, str], content: Iterable[str], file: Path | None
) -> None:
    known = keys()
    for key in given:
        if key not in known:
            raise _unknown(_flag(key), "the command line", nearest(_flag(key), map(_flag, known)))
    for key, name in variables.items():
        if key not in known:
            raise _unknown(name, "the environment", nearest(name, map(variable, known)))
    in_file = tuple(key for key in known if key != "config")
    for key in content:
        if key not in in_file:
            raise _unknown(_written(key), str(file), nearest(key, in_file))


_UNKNOWN_KEY: Final = "extra_forbidden"
_PROBLEMS: Final[Mapping[str, str]] = {
    "missing": "it is missing; set it",
    "model_type": "must be a table; correct it",
    "model_attributes_type": "must be a table; correct it",
    "dict_type": "must be a table; correct it",
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "must be a list; correct it"),
}


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a refusal of a name that is not known: the one that was probably meant, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names) or 'none'}."


def _written(key: str) -> str:
    """A key as a file has it: what is no bare one in quotes, so that an empty one is seen."""
    return key if re.fullmatch(r"[\w-]+", key) else json.dumps(key, ensure_ascii=False)


def _unknown(key: str, place: str, hint: str) -> ConfigurationError:
    """The refusal of a key that is none; ``hint`` is what ``nearest`` says."""
    return ConfigurationError(f"{key}, set in {place}, is no setting; {hint}")


def problem(first: ErrorDetails) -> str:
    """What is wrong with a value, and what to do, which some validators say behind a semicolon; without a full stop."""
    if (known := _PROBLEMS.get(first["type"])) is not None:
        return known
    said = first["msg"].removeprefix("Value error, ").replace("Input should", "must")
    said = f"{said[:1].lower()}{said[1:]}"
    return said if "; " in said else f"{said}; correct it"


def _refusal(error: ValidationError, settings: type[BaseModel], origins: Mapping[str, str]) -> ConfigurationError:
    """The first problem with ``settings``, whose top-level keys were set at ``origins``. A key that is none comes
    first: one that seems to be missing may be that one, misspelt."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    first = next((one for one in problems if one["type"] == _UNKNOWN_KEY), problems[0])
    parts = [str(part) for part in first["loc"] if part != "[key]"]
    key, path = parts[0], ".".join(parts)
    place = origins.get(key, "default")
    if first["type"] == _UNKNOWN_KEY and (table := _table(settings, parts[:-1])) is not None:
        return _unknown(".".join(map(_written, parts)), place, nearest(parts[-1], table.model_fields))
    shown = f" (in {place})" if place != "default" else ""
    return ConfigurationError(f"{path}{shown}: {problem(first)}.", key=key)


def _table(kind: Any, path: Sequence[str]) -> type[BaseModel] | None:
    """The model of the table that is at ``path`` below a value of type ``kind``."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _table(inner[0], path)
    if origin in (Union, UnionType):
        return next((found for one in inner if (found := _table(one, path)) is not None), None)
    if origin is dict and path:
        return _table(inner[1], path[1:])
    if not isinstance(kind, type) or not issubclass(kind, BaseModel):
        return None
    if not path:
        return kind
    field = kind.model_fields.get(path[0])
    return None if field is None else _table(field.annotation, path[1:])
