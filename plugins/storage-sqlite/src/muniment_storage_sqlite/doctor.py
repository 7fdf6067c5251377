"""What ``muniment doctor`` says of this plugin: which file the configuration means, and how large it is."""

from __future__ import annotations

from pathlib import Path

from muniment.errors import ConfigurationError
from muniment.hookspecs import DoctorContext, Finding
from muniment_storage_sqlite.place import SCHEME, locate


def findings(context: DoctorContext) -> list[Finding]:
    """One finding for a configured file; none where another plugin keeps the memories."""
    if not context.storage.startswith(SCHEME):
        return []
    try:
        path = locate(context.storage, Path(context.data_dir))
        return [Finding(str(path), ok=True, detail=f"{path.stat().st_size / 1_000_000:.1f} MB")]
    except FileNotFoundError:
        return [Finding(context.storage, ok=True, detail="its file is not there yet; the first start makes it")]
    except ConfigurationError as error:
        return [Finding(context.storage, ok=False, detail=error.message)]
    except OSError as error:
        return [Finding(context.storage, ok=False, detail=f"its file cannot be looked at ({error.strerror})")]
