"""The reference pages against the code: every error, every hook, every tool."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

from muniment import errors, hookspecs
from muniment.hookspecs import Descriptor
from muniment.operations import OPERATIONS

DOCS = Path(__file__).parent.parent / "docs"


def page(name: str) -> str:
    """The text of a page."""
    return (DOCS / name).read_text(encoding="utf-8")


def codes() -> dict[str, str]:
    """Each code with the name of its class, that of the base class left out."""
    classes = [one for one in vars(errors).values() if inspect.isclass(one)]
    refusals = [one for one in classes if issubclass(one, errors.MunimentError) and one is not errors.MunimentError]
    return {one.code: one.__name__ for one in refusals}


def test_every_error_is_documented() -> None:
    """The table has each code once, with its class, when it is given and what to do; and no other code."""
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.+?) \| (.+?) \|$", page("errors.md"), re.MULTILINE)

    assert {code: name for code, name, _, _ in rows} == codes()
    assert len(rows) == len(codes())


def test_every_error_named_elsewhere_is_real() -> None:
    """A code in the README or the quick start is one that there is."""
    for text in (page("quickstart.md"), (DOCS.parent / "README.md").read_text(encoding="utf-8")):
        named = set(re.findall(r"`((?:unknown|version|patch|not|access|content|invalid)_[a-z_]+)`", text))
        assert named <= codes().keys() | {"version"}


def test_every_hook_is_documented() -> None:
    """The page has each hook with its arguments, and no other."""
    hooks = {
        name: ", ".join(inspect.signature(function).parameters)
        for name, function in vars(hookspecs).items()
        if hasattr(function, f"{hookspecs.GROUP}_spec")
    }

    assert dict(re.findall(r"^## `(muniment_\w+)\((.*)\)`$", page("hooks.md"), re.MULTILINE)) == hooks


def test_every_field_of_a_descriptor_is_documented() -> None:
    """The table of the descriptor's fields is complete."""
    rows = re.findall(r"^\| `(\w+)` \|", page("hooks.md"), re.MULTILINE)

    assert set(rows) == {field.name for field in fields(Descriptor)}


def test_the_example_of_a_descriptor_works() -> None:
    """The example can be copied as it is."""
    (example,) = re.findall(r"```python\n(.+?)```", page("hooks.md"), re.DOTALL)
    module: dict[str, object] = {}
    exec(compile(example, "hooks.md", "exec", dont_inherit=True), module)

    (descriptor,) = module["muniment_plugins"]()  # pyright: ignore
    assert isinstance(descriptor, Descriptor)


def test_every_operation_is_in_the_quick_start() -> None:
    """The table of tools has each operation, by its tool's name."""
    named = set(re.findall(r"`((?:memory|project)_\w+)`", page("quickstart.md")))

    assert named == {name.replace(".", "_") for name in OPERATIONS}
