"""What an author's target says of its plugin: it fits the descriptor, or is refused with what to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from muniment import cli
from muniment.conformance.badge import badge
from muniment.conformance.ending import Escaped, in_words
from muniment.conformance.invariant import Outcome
from muniment.conformance.reference_target import HashTarget, ReferenceTarget
from muniment.conformance.registry import NotJudged, judging
from muniment.conformance.runner import run
from muniment.errors import MunimentError
from muniment.reference import ReferenceStorage


class Mute(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError


class Silent(MunimentError):
    """A refusal whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError


def raises(*_: object) -> Any:
    """What an author's method does that is broken."""
    raise Mute


def gives(answer: object) -> Callable[[object], object]:
    """A method that answers so."""
    return lambda own: answer


def target(**says: Any) -> Callable[[], ReferenceTarget]:
    """What makes the reference target, with other values of its fields and methods."""
    return lambda: type("Own", (ReferenceTarget,), says)()


def storage(answer: object) -> Callable[[], ReferenceTarget]:
    """What makes a target whose storage describes itself so."""

    async def describe(_: object) -> object:
        return answer

    return lambda: ReferenceTarget(type("Own", (ReferenceStorage,), {"describe": describe}))


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (
            target(contract="1.0"),
            ["the contract of its target is '1.0'", "contract = DESCRIPTOR.contract"],
        ),
        (target(contract="9.9"), ["'9.9'", "'1.2'"]),
        (target(contract="x"), ["'x'", "'1.2'"]),
        (target(contract="0.9"), ["'0.9'", "'1.2'"]),
        (target(contract=12), ["a value of type int", "'1.2'"]),
        (target(name="other"), ["the name of its target is 'other'", "says 'reference'", "name = DESCRIPTOR.name"]),
        (target(capabilities=frozenset(["x"])), ["the capabilities of its target is 'x'", "says none"]),
        (target(capabilities=[]), ["a value of type list", "says none"]),
        (target(distribution=7), ["the distribution of its target is a value of type int"]),
        (lambda: None, ["reference_target:storage gave None, not a StorageTarget"]),
        (lambda: ReferenceTarget, ["gave the class ReferenceTarget, not a StorageTarget"]),
        (lambda: 7, ["gave a value of type int"]),
        (HashTarget, ["gave a value of type HashTarget, not a StorageTarget"]),
        (raises, ["raised Mute", "__str__ raised ValueError"]),
        (target(known_failures=["MUT-06"]), ["known_failures of reference: this is a list; map each id to a link"]),
        (target(known_failures={"MUT-06": None}), ["MUT-06 has no link"]),
        (target(known_failures={7: "x"}), ["no invariant 7"]),
        (target(describe=raises), ["Own.describe() raised Mute"]),
        (target(describe=gives(None)), ["Own.describe() gave a value of type NoneType", "a mapping of texts"]),
        (target(describe=gives({"a": 7})), ["Own.describe() gave a mapping with a value of type int"]),
        (target(describe=gives({7: "a"})), ["Own.describe() gave a mapping with a value of type int"]),
        (storage(None), ["describe() of the storage gave a value of type NoneType"]),
        (storage({"server": 7}), ["describe() of the storage gave a mapping with a value of type int"]),
    ],
)
def test_what_a_target_says_wrong_is_not_judged(
    make: Callable[[], object], parts: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line that names the field or the method, what it was, and the remedy; nothing was judged."""
    monkeypatch.setattr("muniment.conformance.reference_target.storage", make)

    assert cli.run(["conform", "reference", "--only", "READ-03"]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1), out + err
    assert "reference was not judged: " in err
    for part in parts:
        assert part in err


def test_a_target_that_fits_is_judged(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """With its own known failures and its own words."""
    made = target(known_failures={"MUT-06": "tracker/1"}, describe=gives({"storage": "memory:"}))
    monkeypatch.setattr("muniment.conformance.reference_target.storage", made)

    assert cli.run(["conform", "reference", "--only", "READ-03"]) == 0
    assert "storage memory:" in capfd.readouterr().out


@pytest.mark.parametrize("contract", ["x", "1", "0.9", "9.9", None])
def test_a_contract_that_is_none_judges_nothing(contract: Any) -> None:
    """Also under pytest, which knows no descriptor."""
    with pytest.raises(NotJudged, match="contract of reference: it "):
        judging(target(contract=contract)())


async def test_a_report_names_the_contract_that_was_judged() -> None:
    """A plugin of an older one was not judged by what came later, and no badge says it was."""
    report = await run(target(contract="1.1")(), only=["READ-03"], seed=7)

    assert report.versions["contract"] == "1.1"
    assert "contract 1.1" in badge(report)


@pytest.mark.parametrize("kind", [Mute, Silent])
@pytest.mark.parametrize("escapes", [False, True])
def test_an_exception_without_a_text_is_an_outcome_all_the_same(kind: type[Exception], escapes: bool) -> None:
    """It is told that it has none."""
    with pytest.raises(kind) as raised:
        raise kind
    ended = in_words(Escaped(raised.value) if escapes else raised.value, ())

    assert ended.outcome in (Outcome.ERROR, Outcome.FAIL)
    assert "its __str__ raised ValueError" in ended.detail


def test_a_target_s_facts_are_redacted(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """What an exception of its own says too."""

    def describe(_: object) -> Mapping[str, str]:
        raise ValueError("postgresql://me:s3cret@host/db")

    monkeypatch.setattr("muniment.conformance.reference_target.storage", target(describe=describe))
    assert cli.run(["conform", "reference", "--only", "READ-03"]) == 2
    assert "s3cret" not in capfd.readouterr().err
