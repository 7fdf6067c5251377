"""Which engine computes a model, and how it comes here: its files first, then the engine on them.

Owns the choice between the two, for files that are here and for those that the model hub has, and the refusals where
neither can. Whether the ONNX engine can follow a model is ``recipe``'s to say; nothing falls to another model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from muniment.errors import ConfigurationError
from muniment_embed_local import hub, onnx_engine, onnx_file, recipe, torch_engine
from muniment_embed_local.model import EngineName, Model
from muniment_embed_local.options import Options
from muniment_embed_local.recipe import Unsupported
from muniment_embed_local.weights import Weights, check_directory, unknown

_log = logging.getLogger(__name__)


def choose(model: str, directory: Path, options: Options) -> EngineName:
    """The engine for the model in ``directory``, as far as its files say. Raises ConfigurationError for none."""
    obstacle = None
    for engine in _wanted(model, options):
        if engine == "torch" and torch_engine.is_installed():
            return engine
        if engine == "onnx":
            obstacle = _obstacle(directory)
            if obstacle is None:
                return engine
    raise _refusal(model, options, obstacle)


def check_offline(weights: Weights, options: Options) -> None:
    """Refuse at once what can never be had where the network is forbidden. Raises ConfigurationError."""
    if not hub.offline() or _cached(weights, options) is not None:
        return
    for engine in ("onnx", "torch"):
        if directory := hub.cached(weights, engine):
            choose(weights.model, directory, options)
    raise unknown(
        weights.repository,
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
        return directory, choose(weights.model, directory, options)
    repository = hub.look_up(weights)
    for engine in _wanted(weights.model, options):
        if (engine == "onnx" and repository.onnx_file) or (engine == "torch" and torch_engine.is_installed()):
            return None, engine
    raise _refusal(weights.model, options, _without_file())


def fetch(weights: Weights, options: Options) -> Path:
    """The model's directory with what its engine needs, downloaded if it is nowhere on this machine.

    Raises ConfigurationError, EmbedderUnavailable.
    """
    if weights.directory is not None:
        return weights.directory
    check_offline(weights, options)
    return _cached(weights, options) or _download(weights, options)


def load(model: str, directory: Path, options: Options, go_on: Callable[[], None] = lambda: None) -> Model:
    """The model in ``directory``, called ``model``; takes seconds. ``go_on`` is called between steps and may raise.

    Raises ConfigurationError for a directory that holds no working model, EmbedderUnavailable where memory runs out.
    """
    check_directory(directory)
    obstacle = None
    for engine in _wanted(model, options):
        if engine == "onnx":
            go_on()
            try:
                return onnx_engine.load(model, directory, threads=options.threads)
            except Unsupported as error:
                obstacle = error
        elif torch_engine.is_installed():
            if obstacle is not None and onnx_file.find(directory) is not None:
                _log.warning("embedder local:%s: %s; PyTorch computes it", model, obstacle)
            go_on()
            torch_engine.import_libraries(options.threads)
            go_on()
            return torch_engine.load(model, directory, device=options.device)
    raise _refusal(model, options, obstacle)


def _wanted(model: str, options: Options) -> tuple[EngineName, ...]:
    """The engines that the options leave, by preference. Raises ConfigurationError."""
    elsewhere = options.device not in (None, "cpu")
    if options.engine == "onnx" and elsewhere:
        raise ConfigurationError(
            f"embedder local:{model}: the device {options.device!r} is for PyTorch, and engine is onnx, which computes "
            "on the processor; remove one of them from [plugins.embed-local].",
            model=model,
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
    for engine in _wanted(weights.model, options):
        directory = hub.cached(weights, engine)
        if directory is not None and (torch_engine.is_installed() if engine == "torch" else not _obstacle(directory)):
            return directory
    return None


def _download(weights: Weights, options: Options) -> Path:
    """The descriptions of the model before its weights, since they tell which weights are needed."""
    repository = hub.look_up(weights)
    obstacle: Unsupported | None = None
    for engine in _wanted(weights.model, options):
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
    raise _refusal(weights.model, options, obstacle)


def _without_file() -> Unsupported:
    return Unsupported("it has no ONNX file", export_helps=True)


def _refusal(model: str, options: Options, obstacle: Unsupported | None) -> ConfigurationError:
    """That no engine can compute the model: why, and each way out."""
    install = f"{torch_engine.EXTRA}"
    if obstacle is None:
        asked = 'engine = "torch"' if options.engine == "torch" else f"device = {options.device!r}"
        text = f"{asked} in [plugins.embed-local] asks for PyTorch, which is not installed; {install}, or remove it."
        return ConfigurationError(f"embedder local:{model}: {text}", model=model)
    export = "; or, where PyTorch is, make a directory with an ONNX file by muniment embeddings export MODEL DIR"
    ways = f"{install}{export if obstacle.export_helps else ''}."
    if options.engine == "onnx":
        text = f"engine is onnx, and {obstacle}; remove engine from [plugins.embed-local], and {ways}"
    else:
        text = f"{obstacle}, so that only PyTorch can compute it, which is not installed; {ways}"
    return ConfigurationError(f"embedder local:{model}: {text}", model=model)
