"""What ``watch`` becomes when nobody uses a server any more: it stops the server, unless somebody has come since."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from muniment.errors import MunimentError
from muniment_storage_postgres import making, postmaster, watch
from muniment_storage_postgres.presence import Presence

_TURN = 1.0
"""Seconds between two looks at a server that is recovering: stopped now, it would begin anew at the next start."""


def is_over(directory: Path, mine: int) -> bool:
    """Whether nobody uses the server, which is then stopped. ``mine`` is the descriptor of the lock of ``watch``."""
    presence = Presence(directory)
    while presence.begun():
        with suppress(MunimentError), presence.exclusive():
            if presence.others():
                return False
            found = postmaster.running(directory)
            if found is None or found.ready or not found.ours:
                postmaster.stop(directory)
                making.abandon(directory, postmaster.stop)
                # The next user, who waits for the other lock, finds nobody watching.
                os.close(mine)
                return True
        time.sleep(_TURN)
    return True


if __name__ == "__main__":
    directory, beside, held = sys.argv[1:]
    if not is_over(Path(directory), int(held)):
        os.execv(sys.executable, (sys.executable, *watch.LIGHTLY, watch.__file__, directory, beside, held))
