"""Whether what a plugin brings as its target is one, and says of the plugin what the plugin's descriptor says.

A target that claims an older contract would not be judged by what came later, one of another name would be reported as
another plugin.
"""

from __future__ import annotations

from collections.abc import Mapping

from muniment.conformance.invariant import features_of
from muniment.conformance.registry import judging
from muniment.conformance.target import EmbedderTarget, StorageTarget, Target, TransportTarget
from muniment.errors import PluginError
from muniment.hookspecs import Descriptor, Kind

_KINDS: Mapping[Kind, type[Target]] = {
    "storage": StorageTarget,
    "embedder": EmbedderTarget,
    "transport": TransportTarget,
}


def fitting(made: object, descriptor: Descriptor) -> Target:
    """The target that a descriptor's ``conformance`` made, checked.

    Raises PluginError where it is none or does not fit the descriptor, NotJudged where it can judge nothing, and
    whatever the target's own methods raise.
    """
    kind = _KINDS[descriptor.kind]
    if not isinstance(made, kind):
        raise PluginError(
            f"{descriptor.name} was not judged: {descriptor.conformance} gave {_what(made)}, not a {kind.__name__}; "
            f"return one."
        )
    for field in ("name", "contract", "capabilities"):
        _refuse_other(field, getattr(made, field), getattr(descriptor, field), descriptor)
    if made.distribution is not None and not isinstance(made.distribution, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PluginError(
            f"{descriptor.name} was not judged: the distribution of its target is {_what(made.distribution)}; write "
            f"the name of the distribution, or None."
        )
    judging(made)
    features_of(made)
    return made


def _refuse_other(field: str, own: object, declared: object, descriptor: Descriptor) -> None:
    if own == declared and type(own) is type(declared):
        return
    raise PluginError(
        f"{descriptor.name} was not judged: the {field} of its target is {_shown(own)}, and its descriptor says "
        f"{_shown(declared)}; write {field} = DESCRIPTOR.{field} into the target."
    )


def _what(value: object) -> str:
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(repr, value))) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return _what(value)
