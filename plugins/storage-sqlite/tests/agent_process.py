"""A process with a storage, for the races of agent memory; run as a script with a path."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from muniment.conformance.agent_process import follow
from muniment.ports import PluginContext
from muniment_storage_sqlite.storage import create

if __name__ == "__main__":
    path = Path(sys.argv[1])
    asyncio.run(follow(create(PluginContext(f"sqlite:{path}", path.parent))))
