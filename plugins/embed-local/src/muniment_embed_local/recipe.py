"""How a model makes a vector of a text, as far as the ONNX engine can follow what its sentence-transformers files say.

Owns reading those files, and which models the engine leaves to PyTorch: what is not understood to the last key is
refused with the reason, since a vector that is nearly right would go into the same space. Loads nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, cast

from muniment_embed_local import onnx_file

Pooling = Literal["mean", "cls"]
Side = Literal["left", "right"]

LONGEST: Final = 1_000_000
"""A limit of more tokens is none: libraries write 10**30 for a tokeniser without one."""
_INPUTS: Final = frozenset({"input_ids", "attention_mask", "token_type_ids"})
OUTPUTS: Final = ("last_hidden_state", "token_embeddings")
"""What exporters call the tokens' vectors."""
_MODULES: Final = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
_POOLING_FLAGS: Final = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_PLAIN_TEXT: Final = {"method": "forward", "method_output_name": "last_hidden_state"}


class Unsupported(Exception):
    """Why the ONNX engine cannot make a model's vectors, as a clause such as "its pooling is max".

    ``export_helps`` says whether an ONNX file made by this plugin would do, ``broken`` whether a file is missing or
    cannot be read, so that a whole copy of the model would do.
    """

    def __init__(self, reason: str, *, export_helps: bool = False, broken: bool = False) -> None:
        super().__init__(reason)
        self.export_helps = export_helps
        self.broken = broken


@dataclass(frozen=True, slots=True)
class Recipe:
    """What becomes of a text: its prompt, its tokens, how their vectors are pooled, and how many numbers remain.

    ``longest`` counts special tokens too; None is no limit. ``dimensions`` is None where none are cut off.
    ``padding_token`` is None where the files name it by its id alone. ``flags`` are those of a BERT tokeniser that
    are set apart from its own file.
    """

    prompts: Mapping[str, str]
    pooling: Pooling
    longest: int | None
    dimensions: int | None
    lowercase: bool
    padding_side: Side
    truncation_side: Side
    padding_token: str | None
    padding_id: int | None
    flags: Mapping[str, bool | None]


def read(directory: Path) -> Recipe:
    """The recipe of a model's directory, whether or not it has an ONNX file. Raises Unsupported."""
    pooling = _pooling(directory)
    settings = _json(directory / "config_sentence_transformers.json", missing={})
    prompts = _prompts(settings)
    if pooling.get("include_prompt", True) is not True and any(prompts.values()):
        raise Unsupported("it leaves its prompt out of the pooling")
    transformer = _transformer(directory)
    tokenizer = _json(directory / "tokenizer_config.json", missing={})
    config = _json(directory / "config.json")
    if not (directory / "tokenizer.json").is_file():
        raise Unsupported("it has no tokenizer.json", export_helps=True, broken=True)
    return Recipe(
        prompts=prompts,
        pooling=_mode(pooling),
        longest=_longest(transformer, tokenizer, config),
        dimensions=_dimensions(settings),
        lowercase=bool(transformer.get("do_lower_case")),
        padding_side=_side(tokenizer, "padding_side"),
        truncation_side=_side(tokenizer, "truncation_side"),
        padding_token=_token(tokenizer.get("pad_token")),
        padding_id=_whole(config.get("pad_token_id")),
        flags=_flags(tokenizer),
    )


def check_file(directory: Path) -> Path:
    """The directory's ONNX file, where it takes and gives what the engine knows. Raises Unsupported."""
    file = onnx_file.find(directory)
    if file is None:
        raise Unsupported("it has no ONNX file", export_helps=True)
    name = file.relative_to(directory).as_posix()
    try:
        graph = onnx_file.read(file)
    except (onnx_file.Damaged, OSError) as error:
        raise Unsupported(f"{name} cannot be read ({error})", export_helps=True, broken=True) from error
    if graph.reduced:
        raise Unsupported(f"the weights in {name} are reduced to fewer bits than float32", export_helps=True)
    if not {"input_ids", "attention_mask"} <= graph.inputs <= _INPUTS:
        raise Unsupported(f"{name} takes {_listed(graph.inputs)}", export_helps=True)
    found = next((graph.outputs[one] for one in OUTPUTS if one in graph.outputs), None)
    if found != onnx_file.Output(onnx_file.FLOAT, 3):
        raise Unsupported(f"{name} gives {_listed(graph.outputs)}, no float32 vector a token", export_helps=True)
    return file


def _pooling(directory: Path) -> dict[str, Any]:
    """The configuration of the pooling; the other modules must be those whose work the engine knows."""
    modules = _list(directory / "modules.json")
    kinds = [str(module.get("type", "")) for module in modules]
    names = [kind.rpartition(".")[2] for kind in kinds]
    if names not in _MODULES or not all(kind.startswith("sentence_transformers.") for kind in kinds):
        raise Unsupported(f"its modules are {', '.join(names) or 'none'}")
    if modules[0].get("path"):
        raise Unsupported(f"its transformer is in a folder of its own, {modules[0]['path']}")
    folder = PurePosixPath(str(modules[1].get("path", "")))
    if folder.is_absolute() or ".." in folder.parts:
        raise Unsupported("modules.json leads out of the directory")
    return _json(directory / folder / "config.json")


def _mode(pooling: Mapping[str, Any]) -> Pooling:
    given: object = pooling.get("pooling_mode")
    if given is None:
        modes = [mode for flag, mode in _POOLING_FLAGS.items() if pooling.get(flag)] or ["mean"]
    else:
        modes = [str(one) for one in cast("list[object]", given)] if isinstance(given, list) else [str(given)]
    if modes == ["mean"]:
        return "mean"
    if modes == ["cls"]:
        return "cls"
    raise Unsupported(f"its pooling is {' and '.join(modes)}")


def _transformer(directory: Path) -> dict[str, Any]:
    """What the transformer module says of itself; each key must be one that leaves texts alone."""
    found = _json(directory / "sentence_bert_config.json", missing={})
    known = {
        "max_seq_length": True,
        "do_lower_case": True,
        "unpad_inputs": True,
        "transformer_task": found.get("transformer_task") == "feature-extraction",
        "module_output_name": found.get("module_output_name") == "token_embeddings",
        "modality_config": _is_plain_text(found.get("modality_config")),
    }
    for key, value in found.items():
        if not known.get(key, False) and value not in (None, False, {}, []):
            raise Unsupported(f"its sentence_bert_config.json sets {key}")
    return found


def _is_plain_text(modalities: object) -> bool:
    if not isinstance(modalities, dict):
        return False
    found = cast("dict[str, object]", modalities)
    return found.get("text") == _PLAIN_TEXT and "message" not in found


def _longest(transformer: Mapping[str, Any], tokenizer: Mapping[str, Any], config: Mapping[str, Any]) -> int | None:
    """The limit as sentence-transformers computes it: its own, else the smaller of the tokeniser's and the model's."""
    own = transformer.get("max_seq_length")
    if own is not None:
        return _limit(own)
    positions = config.get("max_position_embeddings")
    if positions is None:
        raise Unsupported("its files do not say how many tokens a text may have")
    limits = [_limit(tokenizer.get("model_max_length", LONGEST + 1)), None if positions == -1 else _limit(positions)]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(value: object) -> int | None:
    if not isinstance(value, int | float) or not value >= 1:  # also what is not a number
        raise Unsupported(f"it says that a text may have {value} tokens")
    return None if value > LONGEST else int(value)


def _prompts(settings: Mapping[str, Any]) -> dict[str, str]:
    if settings.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        raise Unsupported(f"it is a {settings['model_type']}")
    found: object = settings.get("prompts") or {}
    if not isinstance(found, dict):
        raise Unsupported("its prompts are no table")
    return {name: str(text or "") for name, text in cast("dict[str, object]", found).items()}


def _dimensions(settings: Mapping[str, Any]) -> int | None:
    found = settings.get("truncate_dim")
    if found is not None and (not isinstance(found, int) or found < 1):
        raise Unsupported(f"it keeps {found} dimensions")
    return found


def _side(tokenizer: Mapping[str, Any], key: str) -> Side:
    side = tokenizer.get(key, "right")
    if side == "left" or side == "right":
        return side
    raise Unsupported(f"its {key} is {side}")


def _flags(tokenizer: Mapping[str, Any]) -> dict[str, bool | None]:
    """What transformers takes from the configuration of a BERT tokeniser, whatever tokenizer.json says."""
    if str(tokenizer.get("tokenizer_class", "")) in ("PreTrainedTokenizerFast", "TokenizersBackend"):
        return {}
    return {
        "lowercase": tokenizer.get("do_lower_case", True),
        "handle_chinese_chars": tokenizer.get("tokenize_chinese_chars", True),
        "strip_accents": tokenizer.get("strip_accents"),
    }


def _token(found: object) -> str | None:
    if isinstance(found, dict):
        found = cast("dict[str, object]", found).get("content")
    return found if isinstance(found, str) else None


def _whole(found: object) -> int | None:
    return found if isinstance(found, int) else None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _json(file: Path, *, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    found = _read(file, missing)
    if not isinstance(found, dict):
        raise Unsupported(f"its {file.name} is no table")
    return cast("dict[str, Any]", found)


def _list(file: Path) -> list[dict[str, Any]]:
    found = _read(file, None)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in cast("list[object]", found)):
        raise Unsupported(f"its {file.name} is no list of tables")
    return cast("list[dict[str, Any]]", found)


def _read(file: Path, missing: object) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if missing is None:
            raise Unsupported(f"it has no {file.name}", broken=True) from None
        return missing
    except (OSError, ValueError, RecursionError) as error:
        raise Unsupported(f"its {file.name} cannot be read ({type(error).__name__})", broken=True) from error
