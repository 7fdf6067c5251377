"""The server around the application of ``loopback_api``: in a thread of this process, on a free port of 127.0.0.1.

Needs uvicorn.
"""

from __future__ import annotations

import socket
import threading
from typing import Final

import uvicorn

from muniment_embed_openai.loopback_api import PATH, LoopbackApi

_LEAVE_SECONDS: Final = 1


class Loopback:
    """Serves ``api`` from ``start`` to ``stop``; the thread never keeps the process from ending."""

    def __init__(self, api: LoopbackApi | None = None) -> None:
        self.api = api or LoopbackApi()
        # Listening from the start: who connects before the server accepts only waits.
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.api,
                interface="asgi3",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=_LEAVE_SECONDS,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="muniment-loopback-api", daemon=True
        )

    @property
    def origin(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    @property
    def base_url(self) -> str:
        """Where the API is."""
        return self.origin + PATH

    def start(self) -> None:
        """Serve."""
        self._thread.start()

    def stop(self) -> None:
        """End, within about a second."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
