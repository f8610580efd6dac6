"""A PostgreSQL server of a benchmark's or a test's own: loopback, an unprivileged user, gone afterwards."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

MISSING = "PostgreSQL's initdb and pg_ctl were not found: apt-get install postgresql"


def folder_of_binaries() -> Path | None:
    """Where initdb and pg_ctl are; Debian keeps them off the PATH."""
    places = [Path(where).parent for where in [shutil.which("initdb")] if where]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists() and (place / "pg_ctl").exists()), None)


class Postgres:
    """One running server; ``new_database`` gives the URL of an empty database."""

    def __init__(self, port: int) -> None:
        binaries = folder_of_binaries()
        if binaries is None:
            raise FileNotFoundError(MISSING)
        self._binaries = binaries
        self._port = port
        self._folder = Path(tempfile.mkdtemp(prefix="undertone-postgres-"))
        # The server refuses to run as root.
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
            timeout=300,
        )

    @property
    def pid(self) -> int:
        """The process of which all others of the server are children."""
        # The folder is the server's alone.
        with (self._folder / "data/postmaster.pid").open(encoding="ascii") as lines:
            return int(next(lines))

    def start(self) -> None:
        """Start it, also after it was killed."""
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder}"
        self._run("pg_ctl", "-D", "data", "-l", "log", "-w", "-o", options, "start")

    def kill(self) -> None:
        """End it as a power cut would: kill -9 of every process."""
        self._run("pg_ctl", "-D", "data", "-m", "immediate", "stop")

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        self._number += 1
        name = f"test{self._number}"
        where = f"postgresql://undertone@127.0.0.1:{self._port}"
        with psycopg.connect(f"{where}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"{where}/{name}"

    def close(self) -> None:
        """Stop it and remove its files."""
        # It may be down.
        with contextlib.suppress(subprocess.CalledProcessError):
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
