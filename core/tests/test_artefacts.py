"""Files that commands write: whole or not at all, and a path that cannot be written is refused beforehand."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from muniment import cli
from muniment.cli import artefacts
from muniment.errors import ConfigurationError

OPTIONS = ("--json", "--junit", "--badge")


def test_a_report_is_written_in_the_place_of_the_old_one(tmp_path: Path) -> None:
    """All three files, with the rights of any new file, and nothing beside them."""
    files = [tmp_path / name for name in ("r.json", "r.xml", "r.svg")]
    files[0].write_text("old", encoding="utf-8")
    arguments = [part for option, file in zip(OPTIONS, files, strict=True) for part in (option, str(file))]

    assert cli.run(["conform", "hash", "--only", "EMB-01", *arguments]) == 0
    assert [file.read_text(encoding="utf-8")[:5] for file in files] == ['{\n  "', "<?xml", "<svg "]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(files[1].stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("option", OPTIONS)
def test_a_path_that_cannot_be_written_is_refused_before_the_run(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named with its option and its cause, and nothing is judged for it."""

    def judge(*_: object) -> None:
        pytest.fail("it was judged")

    monkeypatch.setattr("muniment.cli.conform.judge", judge)
    for path, cause in ((tmp_path, "is a directory"), (tmp_path / "no" / "file", "no such file or directory")):
        assert cli.run(["conform", "hash", option, str(path)]) == cli.MISCONFIGURED
        said = capsys.readouterr().err
        assert said.startswith(f"muniment: {option} {path} cannot be written: ")
        assert cause in said
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """A text that cannot be encoded stands for a disk that is full."""
    file = tmp_path / "report.json"
    file.write_text("old", encoding="utf-8")

    with pytest.raises(UnicodeEncodeError):
        artefacts.write("--json", file, "\ud800")
    assert file.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_is_followed(tmp_path: Path) -> None:
    """What it leads to is replaced, not the link."""
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    artefacts.check("--json", link)
    artefacts.write("--json", link, "new")

    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == "new"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """What is no regular file, such as ``/dev/stdout``, is written to, and never replaced."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        artefacts.check("--json", pipe)
        artefacts.write("--json", pipe, "said")
        assert os.read(reader, 10) == b"said"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    """The cause is the system's."""
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"--badge .* cannot be written: not a directory"):
        artefacts.check("--badge", file / "badge.svg")
