"""The two engines of one model are one space, and a model that the ONNX engine cannot follow gets no other vectors."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muniment import passages
from muniment.errors import ConfigurationError
from muniment.ports import Vectors
from muniment_embed_local import engines, recipe, torch_engine
from muniment_embed_local.model import EngineName, Model
from muniment_embed_local.options import Options
from muniment_embed_local.recipe import Unsupported

COSINE_MIN = 0.9999
NAME = "all-MiniLM-L6-v2"
WORDS = (
    *(
        "ledger",
        "harbour",
        "v2.4.7-rc1",
        "snake_case",
        "我们选择了数据库",
        "😀",
        "naïve",
        "e\u0301",
        "אבג",
        "don't",
        "3.14",
    ),
    *("https://a.example/b?c=d", "[SEP]"),
)
WITHOUT_TORCH = """
import asyncio, sys
for name in ("torch", "transformers", "sentence_transformers", "huggingface_hub"):
    sys.modules[name] = None
from muniment_embed_local.embedder import LocalEmbedder
async def main():
    embedder = LocalEmbedder(sys.argv[1])
    await embedder.open()
    print((await embedder.space()).id, len(await embedder.embed_query("x")), await embedder.count_tokens(["a b"]))
    await embedder.close()
asyncio.run(main())
"""


def texts() -> list[str]:
    """Texts of every length up to beyond the limit, in words of several scripts, and what is no text at all."""
    chance = random.Random(7)
    of_words = [" ".join(chance.choices(WORDS, k=length)) for length in (*range(1, 60, 3), 90, 150, 250, 400)]
    odd = [
        "",
        " ",
        "\n\t \r\n",
        "\u200b",
        "x" * 5_000,
        "word " * 300,
        "😀👩‍👩‍👧‍👦" * 90,
        "记忆是一种证据" * 80,
        "\u202eאבג",
    ]
    return [*odd, *of_words]


def least(ours: Vectors, theirs: Vectors) -> float:
    """The least cosine of two rows."""
    return float(np.einsum("ij,ij->i", ours, theirs).min())


def loaded(directory: Path, engine: EngineName) -> Model:
    """The model by that engine."""
    model = engines.load(NAME, directory, Options(engine=engine))
    assert model.engine == engine
    return model


@pytest.fixture(scope="module")
def pair(both: Path) -> tuple[Model, Model]:
    """The model by both engines."""
    return loaded(both, "onnx"), loaded(both, "torch")


def test_both_engines_are_one_space(pair: tuple[Model, Model]) -> None:
    """VEC-05: neither the space nor counts and vectors of many texts, alone or together, tell the engines apart."""
    ours, theirs = pair
    many = texts()
    assert ours.space == theirs.space
    assert ours.count(many) == theirs.count(many)
    assert least(ours.passages(many), theirs.passages(many)) >= COSINE_MIN
    for text in many:
        assert least(ours.passages([text]), theirs.passages([text])) >= COSINE_MIN
        assert float(ours.query(text) @ theirs.query(text)) >= COSINE_MIN


def test_any_text_is_one_for_both(pair: tuple[Model, Model]) -> None:
    """VEC-05: whatever a text is made of, both engines count it alike and make one vector of it."""
    ours, theirs = pair

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=200), min_size=1, max_size=3))
    def check(drawn: list[str]) -> None:
        assert ours.count(drawn) == theirs.count(drawn)
        assert least(ours.passages(drawn), theirs.passages(drawn)) >= COSINE_MIN

    check()


def test_both_engines_cut_passages_alike(pair: tuple[Model, Model]) -> None:
    """EMB-04: a content's passages are the same ones, so that swapping the engine embeds nothing anew."""
    chance = random.Random(3)
    content = "\n\n".join(" ".join(chance.choices(WORDS, k=chance.randint(1, 120))) + "." for _ in range(80))
    units = passages.split(content)
    ours, theirs = (passages.group(units, model.count(units), model.space.passage_tokens) for model in pair)
    assert len(ours) > 10
    assert ours == theirs


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}),
        ("1_Pooling/config.json", {"pooling_mode": "cls"}),
        ("sentence_bert_config.json", {"max_seq_length": 16}),
        ("sentence_bert_config.json", {"max_seq_length": None}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("config_sentence_transformers.json", {"truncate_dim": 64}),
        ("config_sentence_transformers.json", {"prompts": {"query": "find: ", "passage": "keep: "}}),
        ("config_sentence_transformers.json", {"prompts": {"query": "find: "}, "default_prompt_name": "query"}),
        ("tokenizer_config.json", {"truncation_side": "left"}),
        ("tokenizer_config.json", {"padding_side": "left"}),
    ],
)
def test_both_engines_follow_the_files(
    both: Path, copied: Callable[[Path], Path], file: str, change: Mapping[str, Any]
) -> None:
    """What a model's files say of pooling, limits, prompts and dimensions holds for both engines alike."""
    directory = copied(both)
    edit(directory / file, change)
    ours, theirs = loaded(directory, "onnx"), loaded(directory, "torch")
    many = ["a", "Lentil SOUP of the day", "word " * 20, "İstanbul " + "zebra " * 30]
    assert ours.space == theirs.space
    assert ours.count(many) == theirs.count(many)
    for one in ([text] for text in many):
        assert least(ours.passages(one), theirs.passages(one)) >= COSINE_MIN
        assert float(ours.query(one[0]) @ theirs.query(one[0])) >= COSINE_MIN
    together = ours.passages(many), theirs.passages(many)
    assert least(*together) >= COSINE_MIN


DENSE = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
]


@pytest.mark.parametrize(
    ("file", "change", "reason"),
    [
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "its pooling is max and mean"),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, "its pooling is lasttoken"),
        ("modules.json", DENSE, "its modules are Transformer, Pooling, Dense"),
        ("modules.json", None, "it has no modules.json"),
        ("modules.json", [{**DENSE[0], "type": "custom_code.Transformer"}, DENSE[1]], "its modules are"),
        ("modules.json", [DENSE[0], {**DENSE[1], "path": "../elsewhere"}], "leads out of the directory"),
        ("modules.json", [{**DENSE[0], "path": "0_Transformer"}, DENSE[1]], "in a folder of its own"),
        ("sentence_bert_config.json", {"query_length": 32}, "sets query_length"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "sets transformer_task"),
        ("sentence_bert_config.json", {"model_args": {"attn_implementation": "eager"}}, "sets model_args"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "it is a SparseEncoder"),
        ("config.json", None, "it has no config.json"),
        ("tokenizer.json", None, "it has no tokenizer.json"),
        ("tokenizer_config.json", {"padding_side": "top"}, "its padding_side is top"),
    ],
)
def test_what_the_engine_does_not_know_is_named(
    both: Path, copied: Callable[[Path], Path], file: str, change: Any, reason: str
) -> None:
    """A model that is not wholly understood is left to PyTorch, with the reason in words."""
    directory = copied(both)
    if change is None:
        (directory / file).unlink()
    elif isinstance(change, list):
        (directory / file).write_text(json.dumps(change))
    else:
        edit(directory / file, change)
    with pytest.raises(Unsupported, match=reason):
        recipe.read(directory)


def test_a_prompt_that_is_not_pooled_is_left_to_pytorch(both: Path, copied: Callable[[Path], Path]) -> None:
    """Leaving the prompt out matters only to a model that has one."""
    directory = copied(both)
    edit(directory / "1_Pooling" / "config.json", {"include_prompt": False})
    recipe.read(directory)
    edit(directory / "config_sentence_transformers.json", {"prompts": {"query": "find: "}})
    with pytest.raises(Unsupported, match="leaves its prompt out"):
        recipe.read(directory)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: graph(element=onnx.TensorProto.FLOAT16), "are reduced to fewer bits than float32"),
        (lambda: graph(element=onnx.TensorProto.INT8), "are reduced to fewer bits than float32"),
        (lambda: graph(inputs=("input_ids", "attention_mask", "position_ids")), "takes .*position_ids"),
        (lambda: graph(inputs=("input_ids",)), "takes input_ids"),
        (lambda: graph(output="sentence_embedding"), "gives sentence_embedding"),
        (lambda: graph(rank=2), "no float32 vector a token"),
        (lambda: b"", "it is empty"),
        (lambda: graph()[:-20], "it ends too early"),
        (lambda: b"version https://git-lfs.github.com/spec/v1\n", "cannot be read"),
    ],
)
def test_an_unfit_file_is_told_without_loading_it(
    both: Path, copied: Callable[[Path], Path], make: Callable[[], bytes], reason: str
) -> None:
    """Reduced weights, other inputs and outputs, and a damaged file are seen before anything is loaded."""
    directory = copied(both)
    put(directory, make())
    with pytest.raises(Unsupported, match=reason):
        recipe.check_file(directory)
    assert engines.choose(NAME, directory, Options()) == "torch"


def test_a_fit_file_is_taken(both: Path, copied: Callable[[Path], Path]) -> None:
    """The same small graph without a fault, at both places where a model may have it."""
    directory = copied(both)
    put(directory, graph())
    assert recipe.check_file(directory) == directory / "onnx" / "model.onnx"
    (directory / "onnx" / "model.onnx").rename(directory / "model.onnx")
    assert recipe.check_file(directory) == directory / "model.onnx"
    assert engines.choose(NAME, directory, Options()) == "onnx"


@pytest.mark.parametrize("damage", ["pooling", "damaged", "disagreeing", "garbage"])
def test_what_the_engine_cannot_follow_falls_to_pytorch(
    both: Path, weights: Path, copied: Callable[[Path], Path], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """The vectors are PyTorch's own then, never nearly right ones, and the log says why."""
    directory, plain = copied(both), copied(weights)
    for one in (directory, plain):
        if damage == "pooling":
            edit(one / "1_Pooling" / "config.json", {"pooling_mode": "max"})
        if damage == "disagreeing":
            edit(one / "tokenizer_config.json", {"do_lower_case": False})
    if damage == "damaged":
        put(directory, graph()[:-20])
    if damage == "garbage":
        put(directory, graph())
    with caplog.at_level(logging.WARNING, "muniment_embed_local"):
        model = engines.load(NAME, directory, Options())
    assert model.engine == "torch"
    assert "PyTorch computes it" in caplog.text
    many = ["Lentil SOUP", "word " * 40]
    np.testing.assert_allclose(model.passages(many), loaded(plain, "torch").passages(many), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "change", "says"),
    [
        ({}, {"pooling_mode": "max"}, "its pooling is max, so that only PyTorch can compute it"),
        ({"engine": "onnx"}, {"pooling_mode": "max"}, "engine is onnx, and its pooling is max; remove engine"),
        ({"engine": "torch"}, {}, 'engine = "torch" .* asks for PyTorch, which is not installed'),
        ({"device": "cuda"}, {}, "device = 'cuda' .* asks for PyTorch, which is not installed"),
        ({"engine": "onnx", "device": "cuda"}, {}, "remove one of them"),
    ],
)
def test_without_pytorch_the_refusal_says_what_to_do(
    both: Path,
    copied: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    change: dict[str, Any],
    says: str,
) -> None:
    """Where no engine can compute a model, opening is refused with the reason and the remedy, as is loading."""
    monkeypatch.setattr(torch_engine, "is_installed", lambda: False)
    directory = copied(both)
    edit(directory / "1_Pooling" / "config.json", change)
    for attempt in (engines.choose, engines.load):
        with pytest.raises(ConfigurationError, match=says) as refused:
            attempt(NAME, directory, Options(**options))
        assert NAME in refused.value.message


def test_without_pytorch_and_onnx_file_the_export_is_named(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain installation and a model without an ONNX file: install PyTorch, or export it where that is."""
    monkeypatch.setattr(torch_engine, "is_installed", lambda: False)
    with pytest.raises(ConfigurationError, match="it has no ONNX file") as refused:
        engines.choose(NAME, weights, Options())
    assert 'pip install "muniment-embed-local[torch]"' in refused.value.message
    assert "muniment embeddings export" in refused.value.message


def test_the_onnx_engine_needs_no_pytorch(exported: Path) -> None:
    """With PyTorch, its libraries and the hub's client out of reach, the exported model serves."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(exported)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"local:{NAME}:384:mean:unit:254 384 [2]\n"


def test_threads_bound_the_onnx_engine(both: Path) -> None:
    """``threads`` is what onnxruntime computes with."""
    model = engines.load(NAME, both, Options(engine="onnx", threads=3))
    session = model._engine._session  # pyright: ignore
    assert session.get_session_options().intra_op_num_threads == 3  # pyright: ignore[reportUnknownMemberType]


def edit(file: Path, change: Mapping[str, Any]) -> None:
    """Put the change into a JSON file."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({**found, **change}))


def put(directory: Path, content: bytes) -> None:
    """In the place of the directory's ONNX file."""
    file = directory / "onnx" / "model.onnx"
    file.unlink()
    file.write_bytes(content)


def graph(
    *,
    inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
    output: str = "last_hidden_state",
    rank: int = 3,
    element: int = onnx.TensorProto.FLOAT,
) -> bytes:
    """A small ONNX model that says so of itself; what it computes is of no use."""
    helper = onnx.helper
    shape = ["batch", "length", 2][:rank]
    made = helper.make_graph(
        [helper.make_node("Identity", [inputs[0]], [output])],
        "small",
        [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["batch", "length"]) for name in inputs],
        [helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor("weight", element, [2], [1, 0])],
    )
    return helper.make_model(made).SerializeToString()
