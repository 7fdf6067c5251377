"""``muniment doctor`` names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from muniment.hookspecs import DoctorContext
from muniment_storage_sqlite import muniment_doctor


@pytest.mark.parametrize("storage", ["sqlite:", "sqlite:{data}/muniment.db"])
def test_the_file_is_named(storage: str, tmp_path: Path) -> None:
    """With its size, as the storage finds it; one that is not there is made by the first start."""
    context = DoctorContext(storage.format(data=tmp_path), "none", str(tmp_path))
    (missing,) = muniment_doctor(context)
    (tmp_path / "muniment.db").write_bytes(bytes(2_500_000))
    (there,) = muniment_doctor(context)

    assert missing.ok
    assert "first start makes it" in missing.detail
    assert (there.ok, there.subject, there.detail) == (True, str(tmp_path / "muniment.db"), "2.5 MB")


def test_another_storage_is_left_alone(tmp_path: Path) -> None:
    """Its plugin says what there is to say."""
    assert muniment_doctor(DoctorContext("memory:", "none", str(tmp_path))) == []
