"""Which engine computes a model, and how it comes here: its files first, then the engine on them.

Owns the choice between the two, for files that are here and for those that the model hub has, and the refusals where
neither can. Whether the ONNX engine can follow a model is ``recipe``'s to say; nothing falls to another model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from muniment.errors import ConfigurationError
from muniment_embed_local import DESCRIPTOR, hub, onnx_engine, onnx_file, recipe, torch_engine
from muniment_embed_local.model import EngineName, Model
from muniment_embed_local.options import Options
from muniment_embed_local.recipe import Unsupported
from muniment_embed_local.weights import TORCH_WEIGHTS, Weights, check_directory, lacks_torch_weights, unknown

TABLE: Final = f"[plugins.{DESCRIPTOR.name}]"

_log = logging.getLogger(__name__)
_WHOLE_COPY: Final = "replace its files with a whole copy of the model"


def choose(configured: str, directory: Path, options: Options) -> EngineName:
    """The engine for the model in ``directory``, as far as its files say. Raises ConfigurationError for none."""
    return _choose(configured, directory, options, lacking=lacks_torch_weights(directory))


def _choose(configured: str, directory: Path, options: Options, *, lacking: bool) -> EngineName:
    """``lacking`` says that there are no weights for PyTorch, nor will they come."""
    obstacle = None
    for engine in _wanted(configured, options):
        if engine == "torch" and torch_engine.is_installed() and not lacking:
            return engine
        if engine == "onnx":
            obstacle = _obstacle(directory)
            if obstacle is None:
                return engine
    raise _refusal(configured, options, obstacle, directory if lacking else None)


def check_offline(weights: Weights, options: Options) -> None:
    """Refuse at once what can never be had where the network is forbidden. Raises ConfigurationError."""
    if not hub.offline() or _cached(weights, options) is not None:
        return
    for engine in ("onnx", "torch"):
        if directory := hub.cached(weights, engine):
            _choose(weights.configured, directory, options, lacking=False)
    raise unknown(
        weights.configured,
        "the model is not in the cache of this machine, and HF_HUB_OFFLINE forbids a download",
    )


def look(weights: Weights, options: Options) -> tuple[Path | None, EngineName]:
    """The model's directory on this machine, None where the hub has it, and its engine. Downloads nothing.

    Raises ConfigurationError, EmbedderUnavailable.
    """
    directory = weights.directory
    if directory is None:
        check_offline(weights, options)
        directory = _cached(weights, options)
    if directory is not None:
        return directory, choose(weights.configured, directory, options)
    repository = hub.look_up(weights)
    for engine in _wanted(weights.configured, options):
        if (engine == "onnx" and repository.onnx_file) or (engine == "torch" and torch_engine.is_installed()):
            return None, engine
    raise _refusal(weights.configured, options, _without_file())


def fetch(weights: Weights, options: Options) -> Path:
    """The model's directory with what its engine needs, downloaded if it is nowhere on this machine.

    Raises ConfigurationError, EmbedderUnavailable.
    """
    if weights.directory is not None:
        return weights.directory
    check_offline(weights, options)
    return _cached(weights, options) or _download(weights, options)


def load(
    model: str,
    directory: Path,
    options: Options,
    go_on: Callable[[], None] = lambda: None,
    *,
    configured: str | None = None,
) -> Model:
    """The model in ``directory``, called ``model``; takes seconds. ``go_on`` is called between steps and may raise.
    Refusals call it ``configured``, or ``model`` where that is None.

    Raises ConfigurationError for a directory that holds no working model, EmbedderUnavailable where memory runs out.
    """
    called = configured or model
    check_directory(directory, called)
    lacking = lacks_torch_weights(directory)
    obstacle = None
    for engine in _wanted(called, options):
        if engine == "onnx":
            go_on()
            try:
                return onnx_engine.load(model, directory, threads=options.threads, configured=called)
            except Unsupported as error:
                obstacle = error
        elif torch_engine.is_installed() and not lacking:
            if onnx_file.find(directory) is None and not (obstacle and obstacle.broken):
                obstacle = None
            if obstacle is not None:
                _log.warning("embedder local:%s: %s; PyTorch computes it", called, obstacle)
            go_on()
            torch_engine.import_libraries(options.threads)
            go_on()
            return torch_engine.load(model, directory, device=options.device, configured=called, obstacle=obstacle)
    raise _refusal(called, options, obstacle, directory if lacking else None)


def _wanted(configured: str, options: Options) -> tuple[EngineName, ...]:
    """The engines that the options leave, by preference. Raises ConfigurationError."""
    elsewhere = options.off_processor
    if options.engine == "onnx" and elsewhere:
        raise ConfigurationError(
            f"embedder local:{configured}: the device {options.device!r} is for PyTorch, and engine is onnx, which "
            f"computes on the processor and has only the device cpu; remove one of them from {TABLE}.",
            model=configured,
        )
    if options.engine == "onnx":
        return ("onnx",)
    return ("torch",) if options.engine == "torch" or elsewhere else ("onnx", "torch")


def _obstacle(directory: Path) -> Unsupported | None:
    try:
        recipe.read(directory)
        recipe.check_file(directory)
    except Unsupported as error:
        return error
    return None


def _cached(weights: Weights, options: Options) -> Path | None:
    for engine in _wanted(weights.configured, options):
        directory = hub.cached(weights, engine)
        if directory is not None and (torch_engine.is_installed() if engine == "torch" else not _obstacle(directory)):
            return directory
    return None


def _download(weights: Weights, options: Options) -> Path:
    """The descriptions of the model before its weights, since they tell which weights are needed."""
    repository = hub.look_up(weights)
    obstacle: Unsupported | None = None
    for engine in _wanted(weights.configured, options):
        if engine == "torch" and torch_engine.is_installed():
            return hub.download(weights, repository, "torch")
        if engine == "onnx" and repository.onnx_file is None:
            obstacle = _without_file()
        elif engine == "onnx":
            try:
                recipe.read(hub.download(weights, repository, None))
                directory = hub.download(weights, repository, "onnx")
                recipe.check_file(directory)
            except Unsupported as error:
                obstacle = error
            else:
                return directory
    raise _refusal(weights.configured, options, obstacle)


def _without_file() -> Unsupported:
    return Unsupported("it has no ONNX file", export_helps=True)


def _refusal(
    configured: str, options: Options, obstacle: Unsupported | None, lacking: Path | None = None
) -> ConfigurationError:
    """That no engine can compute the model: why, and each way out. ``lacking`` is a directory without weights for
    PyTorch.
    """
    if obstacle is None:
        text = _pytorch_refusal(options, lacking)
    elif options.engine == "onnx":
        text = f"engine is onnx, and {obstacle}; {_ways(obstacle, lacking, f'remove engine from {TABLE}')}"
    elif lacking is not None:
        text = f"{obstacle}, and {_without_weights(lacking)}; it is incomplete or damaged: {_WHOLE_COPY}."
    else:
        text = (
            f"{obstacle}, so that only PyTorch can compute it, which is not installed; {_ways(obstacle, lacking, '')}"
        )
    return ConfigurationError(f"embedder local:{configured}: {text}", model=configured)


def _pytorch_refusal(options: Options, lacking: Path | None) -> str:
    """For options that ask for PyTorch, where it or its weights are missing."""
    name, value = ("engine", '"torch"') if options.engine == "torch" else ("device", repr(options.device))
    asked = f"{name} = {value} in {TABLE} asks for PyTorch"
    if lacking is None:
        return f"{asked}, which is not installed; {torch_engine.EXTRA}, or remove it."
    found = f"{asked}, and {_without_weights(lacking)}"
    if _obstacle(lacking) is not None:
        return f"{found}; {_WHOLE_COPY}."
    only = "" if name == "engine" else ", and onnxruntime has only the device cpu"
    return (
        f"{found}, only an ONNX file, which onnxruntime computes{only}; remove {name} from {TABLE}, or name a "
        "directory with weights for PyTorch."
    )


def _without_weights(directory: Path) -> str:
    return f"the directory {directory.absolute()} has no weights for PyTorch ({' or '.join(TORCH_WEIGHTS[:2])})"


def _ways(obstacle: Unsupported, lacking: Path | None, first: str) -> str:
    """What to do about ``obstacle``; ``first`` where PyTorch has weights."""
    installed = torch_engine.is_installed()
    steps = [step for step in (first, "" if installed else torch_engine.EXTRA) if step]
    ways = [
        _WHOLE_COPY if obstacle.broken else "",
        ", and ".join(steps) if lacking is None else "",
        f"{'' if installed else 'where PyTorch is, '}make a directory with an ONNX file by muniment embeddings export "
        "MODEL DIR"
        if obstacle.export_helps
        else "",
    ]
    return f"{'; or '.join(way for way in ways if way) or 'choose another model'}."
