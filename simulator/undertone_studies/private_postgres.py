"""A private PostgreSQL server for a benchmark or a test: on loopback, as an unprivileged user, removed afterwards."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

MISSING = "PostgreSQL's initdb and pg_ctl were not found: apt-get install postgresql"

# Time limit for a start of the server, which may have to recover after `kill`.
_START_SECONDS = 240


def folder_of_binaries() -> Path | None:
    """Return the folder of initdb and pg_ctl; Debian does not put them on the PATH."""
    places = [Path(where).parent for where in [shutil.which("initdb")] if where]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists() and (place / "pg_ctl").exists()), None)


class Postgres:
    """A PostgreSQL server that runs until `close`. `new_database` creates an empty database and returns its URL.

    ``durable``: True if commits survive a power cut. Otherwise they survive `kill` but not a power cut. A server that
    is not durable starts faster after `kill`; a durable one then syncs all its files, which can take long.
    """

    def __init__(self, port: int, *, durable: bool = True) -> None:
        binaries = folder_of_binaries()
        if binaries is None:
            raise FileNotFoundError(MISSING)
        self._binaries = binaries
        self._port = port
        self._durable = durable
        self._folder = Path(tempfile.mkdtemp(prefix="undertone-postgres-"))
        # PostgreSQL refuses to run as root.
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as_user:
            shutil.chown(self._folder, "postgres")
        self._number = 0
        self._run("initdb", "-D", "data", "-A", "trust", "-U", "undertone", "-E", "UTF8", "--no-sync")
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self._as_user, self._binaries / program, *arguments],
            cwd=self._folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=2 * _START_SECONDS,
        )

    @property
    def pid(self) -> int:
        """Id of the server's main process, whose children are all its other processes."""
        # Only the server's user may enter the folder.
        with (self._folder / "data/postmaster.pid").open(encoding="ascii") as lines:
            return int(next(lines))

    def start(self) -> None:
        """Start the server; this also works after `kill`."""
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder}"
        options += "" if self._durable else " -c fsync=off"
        self._run("pg_ctl", "-D", "data", "-l", "log", "-w", "-t", str(_START_SECONDS), "-o", options, "start")

    def kill(self) -> None:
        """Kill every process of the server, as a power cut would."""
        self._run("pg_ctl", "-D", "data", "-m", "immediate", "stop")

    def new_database(self) -> str:
        """Make a new, empty database and return its URL."""
        import psycopg

        self._number += 1
        name = f"test{self._number}"
        where = f"postgresql://undertone@127.0.0.1:{self._port}"
        with psycopg.connect(f"{where}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"{where}/{name}"

    def close(self) -> None:
        """Stop the server and remove its files."""
        # Stopping fails if the server has already ended.
        with contextlib.suppress(subprocess.CalledProcessError):
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
