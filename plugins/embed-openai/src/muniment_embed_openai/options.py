"""The plugin's options, and which server is asked with which key.

Owns that a key goes only to the server that it is meant for: OpenAI's own variables belong together, and a server
that ``base_url`` names gets no key but one that ``api_key_env`` names. No value of a key is ever part of a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, LiteralString
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from muniment.errors import ConfigurationError
from muniment.plugin_options import PluginOptions
from muniment_embed_openai import DESCRIPTOR

BASE_URL: Final = "https://api.openai.com/v1"
KEY_VARIABLE: Final = "OPENAI_API_KEY"
URL_VARIABLE: Final = "OPENAI_BASE_URL"
PASSAGE_BYTES: Final = 2_000
"""Bytes of a passage, some 450 tokens of English: enough to say one thing, too little to blur several.

As tokens they leave room for a model's own in a limit of 2,048.
"""

_URL = re.compile(r"https?://[^\s/?#@\\]+(?:/[^\s?#@\\]*)?")
_URL_PROBLEM: Final = (
    "must begin with http:// or https:// and have neither a user, a query nor a fragment, such as "
    "http://localhost:8080/v1"
)
_KEY = re.compile(r"[\x21-\x7e]+")


def _written(name: LiteralString, pattern: str, problem: LiteralString) -> AfterValidator:
    """That a value is wholly of the ``pattern``; the refusal says the ``problem`` in words, and never the value."""
    wanted = re.compile(pattern)

    def check(value: str) -> str:
        if not wanted.fullmatch(value):
            raise PydanticCustomError(name, problem)
        return value

    return AfterValidator(check)


def _parsable(value: str) -> str:
    try:
        host, port = (parts := urlsplit(value)).hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port == 0 or not value.isascii() or not value.isprintable():
        raise PydanticCustomError("base_url", "must have a host in ASCII, and a port of 1 to 65535 if any")
    return value


_Url = Annotated[str, _written("base_url", _URL.pattern, _URL_PROBLEM), AfterValidator(_parsable)]
_Variable = Annotated[
    str,
    _written(
        "api_key_env",
        r"[A-Z_][A-Z0-9_]{0,99}",
        "must be the name of an environment variable, in capitals such as ACME_KEY, not the key itself",
    ),
]
_Line = Annotated[str, _written("line", r"[\x21-\x7e]{1,200}", "must be 1 to 200 characters of ASCII without spaces")]
_Name = Annotated[
    str,
    _written(
        "model_name",
        r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}",
        "must be a name of 1 to 200 letters, digits and . _ / - that begins with a letter or a digit",
    ),
]
_Whole = Annotated[int, Field(strict=True)]


class Options(PluginOptions):
    """The plugin's table in the configuration.

    ``base_url`` names a server with OpenAI's API, and ``api_key_env`` the environment variable that holds its key, in
    capitals, so that a key which was written here by mistake is refused and not shown. ``dimensions`` asks the model
    for shorter vectors. ``model_name`` says what the model is called, for two models that would have the same name.
    ``timeout`` is in seconds and for one call, all its attempts included. Tokens are bounded by UTF-8 bytes: a passage
    has at most ``passage_bytes`` of them, and a request at most ``batch_texts`` texts of ``batch_bytes`` in all.
    ``concurrency`` bounds the requests for passages at the same time.
    """

    base_url: _Url | None = None
    api_key_env: _Variable | None = None
    organization: _Line | None = None
    project: _Line | None = None
    dimensions: _Whole | None = Field(default=None, ge=8, le=4096)
    model_name: _Name | None = None
    timeout: float = Field(default=30.0, gt=0, le=600, allow_inf_nan=False, strict=True)
    max_retries: _Whole = Field(default=3, ge=0, le=10)
    concurrency: _Whole = Field(default=4, ge=1, le=64)
    passage_bytes: _Whole = Field(default=PASSAGE_BYTES, ge=64, le=8_191)
    batch_texts: _Whole = Field(default=256, ge=1, le=2_048)
    batch_bytes: _Whole = Field(default=300_000, ge=8_192, le=300_000)


@dataclass(frozen=True, slots=True)
class Access:
    """The server, and the key for it with the variable that holds it; None for a server that wants no key.

    ``own`` says that the server is the one that OpenAI's variables are about, so that its client may use them.
    """

    base_url: str
    key_variable: str | None
    key: str | None = field(repr=False)
    own: bool


def access(name: str, options: Options, environ: Mapping[str, str]) -> Access:
    """Which server is asked with which key, for the embedder ``name``. Raises ConfigurationError, without the key."""
    if options.base_url is not None:
        variable = options.api_key_env
        return Access(options.base_url, variable, _key(name, variable, environ), own=False)
    variable = options.api_key_env or KEY_VARIABLE
    base_url = environ.get(URL_VARIABLE) or BASE_URL
    if not _URL.fullmatch(base_url):
        raise ConfigurationError(f"embedder {name}: {URL_VARIABLE} {_URL_PROBLEM}; correct or remove it.")
    return Access(base_url, variable, _key(name, variable, environ), own=True)


def _key(name: str, variable: str | None, environ: Mapping[str, str]) -> str | None:
    if variable is None:
        return None
    key = environ.get(variable, "").strip()
    table = f"[plugins.{DESCRIPTOR.name}]"
    if not key:
        raise ConfigurationError(
            f"embedder {name}: the environment variable {variable} holds no API key; set it, or name another variable "
            f"as api_key_env in {table}. A server that wants no key is named there as base_url, without api_key_env.",
            reason="no_key",
        )
    if not _KEY.fullmatch(key):
        raise ConfigurationError(
            f"embedder {name}: the API key in {variable} has a space, a line end or a character beyond ASCII in it; "
            "copy it again.",
            reason="bad_key",
        )
    return key
