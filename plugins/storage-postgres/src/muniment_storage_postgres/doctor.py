"""What ``muniment doctor`` asks of an embedded server's place; nothing is started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from muniment.errors import ConfigurationError
from muniment.hookspecs import DoctorContext, Finding
from muniment.ports import PluginContext
from muniment_storage_postgres import directories, settings


def findings(context: DoctorContext) -> Sequence[Finding]:
    """Whether a server may keep its data in the data directory; what is in it is looked at when one starts."""
    configured = settings.parse(PluginContext(context.storage, Path(context.data_dir)))
    if configured.directory is None:
        return ()
    subject = f"embedded PostgreSQL in {configured.directory}"
    try:
        directories.check_place(configured.directory)
    except ConfigurationError as error:
        return (Finding(subject, ok=False, detail=error.message),)
    return (Finding(subject, ok=True, detail="a server may keep its data there"),)
