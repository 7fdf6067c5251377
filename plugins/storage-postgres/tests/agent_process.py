"""A process with a storage, for the races of agent memory; run as a script with a URL and a schema."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from muniment.conformance.agent_process import follow
from muniment.ports import PluginContext
from muniment_storage_postgres.storage import create

if __name__ == "__main__":
    url, schema = sys.argv[1:]
    options = {"schema": schema, "partitions": 2, "pool_size": 16}
    asyncio.run(follow(create(PluginContext(url, Path(tempfile.gettempdir()), options))))
