"""A PostgreSQL of our own in a data directory, shared by every process that opens the same one.

Who uses it is counted in ``presence``, and the last user that leaves stops it; ``launch`` starts it, ``making`` makes
its data, ``postmaster`` knows whether it lives, ``reasons`` why it does not. Everything here blocks; callers use a
worker thread.
"""

from __future__ import annotations

import atexit
import logging
import re
import sys
import threading
import time
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from muniment.errors import MunimentError
from muniment.ports.refusals import closed
from muniment_storage_postgres import accounts, directories, launch, making, postmaster, reasons, waiting
from muniment_storage_postgres.presence import Presence
from muniment_storage_postgres.waiting import Wait

_log = logging.getLogger(__name__)

_START_PATIENCE = 60.0
_CONNECT = 5
"""Seconds that one try to connect may take."""
_LEAVE_PATIENCE = 10.0
"""Seconds that a process which leaves waits for the lock; whoever has it longer uses the server, or is watched."""

_IN_PROCESS = threading.RLock()
_ATTEMPTS = 3
"""How often a start is tried of which the server itself said nothing, and making the data, whose causes to fail under
load go by."""


class EmbeddedServer:
    """The server of one data directory, as this process uses it. Get it from ``server``.

    ``lock_patience`` and ``start_patience`` are the seconds that this process waits for others that start or stop it,
    and for its own start. ``mended`` tells, in sentences, what starts of this process found amiss and did about it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock_patience: float | None = None
        self.start_patience = float("inf")
        self.mended: list[str] = []
        self._users = 0
        self._joined = False
        self._presence = Presence(directory)
        self._given = directory
        self._uri = ""
        self._logged = 0
        self._said = ""
        self._failures = 0
        self._recovers = False

    def start(self, given_up: threading.Event | None = None) -> str:
        """Start the server or join it; its conninfo. Raises ConfigurationError, and StorageUnavailable, also where a
        wait for others was ``given_up``."""
        with _IN_PROCESS:
            conninfo = self._running(given_up)
            self._users += 1
            return conninfo

    def stop(self) -> None:
        """Leave the server; stop it if nobody else uses it."""
        with _IN_PROCESS:
            self._users = max(0, self._users - 1)
            if self._users == 0 and self._joined:
                self._leave()

    def revive(self) -> str:
        """The conninfo of a server that answers, started again if it was killed. Raises StorageUnavailable after the
        last ``stop``: a server that came to life then would have nobody to stop it."""
        with _IN_PROCESS:
            if self._users == 0:
                raise closed()
            return self._running()

    def _running(self, given_up: threading.Event | None = None) -> str:
        try:
            return self._run(given_up)
        except OSError as error:
            raise directories.unusable(self.directory, error) from error

    def _run(self, given_up: threading.Event | None) -> str:
        launch.check()
        directories.check_place(self.directory)
        self._check_before_locking()
        self._given = directories.given_path(self.directory)
        try:
            with self._presence.exclusive(given_up, self.lock_patience):
                return self._started()
        finally:
            if not self._joined and postmaster.running(self.directory) is None:
                self._presence.unwatched()

    def _started(self) -> str:
        try:
            directories.check_contents(self.directory)
            return self._waited_for()
        except BaseException:
            if self._users == 0:
                self._abandon()
            raise

    def _abandon(self) -> None:
        """Leave nothing running that nobody uses, but let a recovery go on: the next start would begin it anew. Whoever
        watches stops it then."""
        atexit.unregister(self._leave)
        self._joined = False
        self._presence.leave()
        found = postmaster.running(self.directory)
        if found is not None and found.ready and not self._presence.others():
            self._shut_down()

    def _check_before_locking(self) -> None:
        """Leave nothing in a directory that is refused; only the first process can know before it has the lock."""
        try:
            directories.check_contents(self.directory)
        except MunimentError:
            if not self._presence.begun():
                raise

    def _waited_for(self) -> str:
        """The conninfo, once the server answers."""
        self._logged, self._said, self._failures = reasons.log_size(self.directory), "", 0
        self._recovers = False
        wait = Wait(min(_START_PATIENCE, self.start_patience))
        while True:
            try:
                conninfo = self._answering(wait)
            except (psycopg.Error, launch.LaunchFailed, _AnotherServer, postmaster.StillDying) as error:
                # A server that was killed may still be dying, and one that crashed may take long to recover.
                if wait.left < 0 or not self._may_pass(error):
                    raise self._refusal(error, wait.seconds) from error
                if wait.is_due:
                    wait.tell(self._awaited(error))
                time.sleep(0.2)
            except OSError as error:
                raise directories.unusable(self.directory, error) from error
            else:
                if self._recovers:
                    self._tell(
                        f"The PostgreSQL in {self.directory} had been killed or had crashed; it was started again, and "
                        f"has recovered what was committed, within {wait.seconds:.1f} s."
                    )
                return conninfo

    def _answering(self, wait: Wait) -> str:
        self._presence.enter()
        postmaster.check_ours(self.directory)
        if sys.platform == "win32" or postmaster.running(self.directory) is None:
            self._end_of_deleted()
            self._recovers |= making.is_made(self.directory) and not postmaster.was_shut_down(self.directory)
            postmaster.clear_remains(self.directory, self._given)
            if not making.is_made(self.directory):
                making.make(self.directory, lambda place: self._launch(place, wait), self._stop_in)
            self._uri = self._launch(self.directory, wait)
        self._joined = True
        atexit.unregister(self._leave)
        atexit.register(self._leave)
        conninfo = self._conninfo()
        with psycopg.connect(conninfo, connect_timeout=_CONNECT) as connection:
            (directory,) = connection.execute("SHOW data_directory").fetchone() or ("",)
        # A link that the server was started by may be gone since.
        if Path(directory).exists() and Path(directory).resolve() != self.directory:
            raise _AnotherServer(f"a server of {directory} answers")
        return conninfo

    def _end_of_deleted(self) -> None:
        for pid in postmaster.end_of_deleted(self.directory):
            self._tell(
                f"{self.directory} had been deleted while its PostgreSQL ran as process {pid}, which was ended: its "
                "data were gone, and what it was still asked to write would have been lost."
            )

    def _tell(self, sentence: str) -> None:
        self.mended.append(sentence)
        _log.warning("%s", sentence)

    def _launch(self, place: Path, wait: Wait) -> str:
        """Start the server of the data directory, or of one that is still being made below it."""
        if accounts.is_root():
            accounts.ensure(self.directory)
        given = directories.given_path(place)
        directories.let_through(place, given)
        return launch.launch(given, self._presence.beside, wait, self._starting)

    def _conninfo(self) -> str:
        if sys.platform == "win32":
            return self._uri
        return make_conninfo("", user="postgres", dbname="postgres", host=str(self._given), port=postmaster.PORT)

    def _may_pass(self, error: Exception) -> bool:
        """Whether what keeps the server from starting goes by."""
        if isinstance(error, psycopg.Error):
            return not re.search("authentication failed|does not exist|no pg_hba.conf entry", str(error))
        if not isinstance(error, launch.LaunchFailed):
            return True
        self._said, self._failures = error.said, self._failures + 1
        # What was slow to start may be there by now, and is joined.
        if postmaster.running(self.directory) is not None or reasons.STILL_THERE in self._told():
            return True
        silent = not reasons.logged(self.directory, self._logged)
        return self._failures < _ATTEMPTS and (silent or not making.is_made(self.directory))

    def _leave(self) -> None:
        with _IN_PROCESS:
            atexit.unregister(self._leave)
            self._users, self._joined = 0, False
            try:
                with self._presence.exclusive(patience=_LEAVE_PATIENCE):
                    self._presence.leave()
                    if not self._presence.others():
                        self._shut_down()
            except MunimentError as error:
                _log.warning("left the PostgreSQL in %s to whoever watches it: %s", self.directory, error)
                self._presence.leave()
            self._presence.unwatched()

    def _shut_down(self) -> None:
        """Stop the server that runs now, which another process may have started since this one joined."""
        self._stop_in(self.directory)

    def _stop_in(self, place: Path) -> None:
        if sys.platform != "win32":
            postmaster.stop(place)
        elif postmaster.running(place) is not None:
            launch.stop(place, self._presence.beside, Wait(_START_PATIENCE))

    def _told(self) -> str:
        """What was said about this start: by the server, or by what should have started it, which repeats old logs."""
        return reasons.logged(self.directory, self._logged) or self._said

    def _awaited(self, error: Exception) -> str:
        """Whom a start waits for."""
        why = (str(error).strip() or type(error).__name__).splitlines()[-1]
        return self._living() or f"the PostgreSQL in {self.directory} to start, which is tried again ({why})"

    def _starting(self, pid: int) -> str:
        """Whom a start waits for while a process is at it."""
        what = "start the PostgreSQL" if making.is_made(self.directory) else "make the data of a PostgreSQL"
        return self._living() or f"{waiting.named([pid])} to {what} in {self.directory}"

    def _living(self) -> str:
        found = postmaster.running(self.directory)
        if found is None:
            return ""
        recovers = "recover what was written before it was killed" if self._recovers else "start"
        who = f"{waiting.named([found.pid])}, the PostgreSQL in {self.directory}, to"
        return f"{who} answer" if found.ready else f"{who} {recovers}"

    def _refusal(self, error: Exception, seconds: float) -> MunimentError:
        """Why the server does not start within some seconds, with what to do."""
        found = postmaster.running(self.directory)
        if found is not None and not found.ready:
            return reasons.recovering(self.directory, seconds)
        if found is not None and isinstance(error, psycopg.errors.ConnectionTimeout):
            return reasons.silent(self.directory, found.pid)
        if isinstance(error, postmaster.StillDying):
            return reasons.dying(self.directory, error)
        said = "" if isinstance(error, launch.LaunchFailed) else str(error)
        return reasons.refusal(self.directory, f"{said}\n{self._told()}")


class _AnotherServer(Exception):
    """What answers is not the server of this directory."""


_SERVERS: dict[Path, EmbeddedServer] = {}


def server(directory: Path) -> EmbeddedServer:
    """The one object of this process for a data directory."""
    with _IN_PROCESS:
        return _SERVERS.setdefault(directory.resolve(), EmbeddedServer(directory.resolve()))
