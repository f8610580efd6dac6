"""A mosquitto on loopback for demonstrations, benchmarks and tests: a child process with a folder of its own."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from undertone_aggregator.base.files import write_private
from undertone_aggregator.base.open_files import raise_limit
from undertone_aggregator.base.uninterrupted import uninterrupted
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.mosquitto import CONFIG_FILE, INFLIGHT, PID_FILE, mosquitto_limits
from undertone_shared.errors import Invalid
from undertone_shared.topics import DEFAULT_PREFIX

HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 10.0
_PLACES = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin", "/opt/homebrew/opt/mosquitto/sbin")


def find_mosquitto(start: Path | None = None) -> str:
    """Find the mosquitto program: $UNDERTONE_MOSQUITTO, PATH, usual places, nearest .tools/bin from ``start`` up.

    ``start``: a folder, by default the working directory. If no mosquitto is found, raises Invalid, which tells how to
    install it.
    """
    named = os.environ.get("UNDERTONE_MOSQUITTO")
    if named:
        if not os.access(named, os.X_OK):
            raise Invalid(f"UNDERTONE_MOSQUITTO is {named!r}, expected a program that can be run")
        return named
    here = (start or Path.cwd()).resolve()
    places = [*_PLACES, *(str(folder / ".tools" / "bin") for folder in (here, *here.parents))]
    binary = shutil.which("mosquitto") or shutil.which("mosquitto", path=os.pathsep.join(places))
    if binary is None:
        raise Invalid(
            "no mosquitto was found: install it (apt install mosquitto, brew install mosquitto), run `make tools` in a"
            " clone, or name the program in UNDERTONE_MOSQUITTO"
        )
    return binary


def free_port() -> int:
    """Return a TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Mosquitto:
    """A mosquitto child process that listens on 127.0.0.1 only and keeps its state in ``directory``.

    ``port``: the port to listen on; 0 chooses a free port. ``passwords``, ``access``: mosquitto's password and
    access-control files; without them both are generated, with the user ``aggregator`` and its password in
    ``<directory>/aggregator.password``. ``own_client_ids``: clients choose their client identifiers, so that one user
    can have several connections, as measurements need; then another user can take over a session. ``log_messages``: the
    broker logs every message. `start` raises Invalid if no mosquitto is found or it does not start.
    """

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        *,
        prefix: str = DEFAULT_PREFIX,
        passwords: Path | None = None,
        access: Path | None = None,
        autosave_seconds: int = 2,
        queued_messages: int = 1_000_000,
        inflight_messages: int = INFLIGHT,
        own_client_ids: bool = False,
        log_messages: bool = False,
    ) -> None:
        self.host = HOST
        self.directory = directory.resolve()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._pid_file = self.directory / PID_FILE
        self.log_file = self._log_file = self.directory / "mosquitto.log"
        self.port = port or free_port()
        self._passwords = (passwords or self.directory / "passwords").resolve()
        self._access = (access or self.directory / "access").resolve()
        if passwords is None:
            self._generate_passwords()
        if access is None:
            credentials.write_access_rules(self._access, prefix)
        self._config = self.directory / CONFIG_FILE
        self._text = self._configuration(autosave_seconds, queued_messages, inflight_messages, own_client_ids)
        self._text += "log_type debug\n" if log_messages else ""
        self._child: subprocess.Popen[bytes] | None = None

    def password(self, user: str) -> str:
        """Return the generated password of ``user``. Only ``aggregator`` has one: raises Invalid for other users."""
        path = self.directory / f"{user}.password"
        if not path.exists():
            raise Invalid(f"the broker in {self.directory} has no generated password for {user!r}")
        return path.read_text(encoding="utf-8").strip()

    def start(self) -> None:
        """Start mosquitto and return when it accepts connections. Raises Invalid with its log if it does not."""
        if self._accepts():
            raise Invalid(f"port {self.port} of {HOST} is another program's: choose a free port, or 0 for any")
        write_private(self._config, self._text)
        raise_limit()
        command = [find_mosquitto(), "-c", str(self._config)]
        nothing = subprocess.DEVNULL
        with uninterrupted():
            # Ctrl-C must not reach the broker, because the process that started it stops it last.
            self._child = subprocess.Popen(
                command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                break
            if self._accepts():
                return
            time.sleep(0.02)
        self.stop()
        raise Invalid(f"mosquitto did not start on {HOST}:{self.port}: {self._last_words()}")

    def stop(self) -> None:
        """Stop mosquitto by SIGTERM, so that it saves its queues; after ten seconds by SIGKILL. May be called twice."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Stop mosquitto by SIGKILL, as a power cut would: state that it has not saved is lost."""
        self._end(signal.SIGKILL)

    @property
    def files(self) -> tuple[Path, Path]:
        """Paths of the password file and the access-control file."""
        return self._passwords, self._access

    def reload(self) -> None:
        """Make mosquitto read its password and access files again, and disconnect users who are no longer in them."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGHUP)

    @property
    def pid(self) -> int | None:
        """Process id of mosquitto, or None if it does not run."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def __enter__(self) -> "Mosquitto":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self, how: signal.Signals) -> None:
        pid = self.pid
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
        deadline = time.monotonic() + STOP_SECONDS
        while self.pid is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._child is not None:
            self._child.wait()
        self._child = None

    def _configuration(
        self, autosave_seconds: int, queued_messages: int, inflight_messages: int, own_client_ids: bool
    ) -> str:
        if queued_messages < 1:
            # With max_queued_messages 0, some releases of mosquitto 2.0 drop every message.
            raise Invalid(f"queued_messages is {queued_messages}, expected at least 1")
        limits = "\n".join(
            mosquitto_limits(queued_messages, inflight_messages, username_as_client_id=not own_client_ids)
        )
        return f"""\
listener {self.port} {HOST}
{limits}
password_file {self._passwords}
acl_file {self._access}
persistence true
persistence_location {self.directory}/
autosave_interval {autosave_seconds}
connection_messages false
log_dest file {self._log_file}
log_type error
log_type warning
log_type notice
pid_file {self._pid_file}
{"user root" if os.geteuid() == 0 else ""}
"""

    def _generate_passwords(self) -> None:
        path = self.directory / f"{credentials.AGGREGATOR}.password"
        if not path.exists():
            write_private(path, credentials.new_password() + "\n")
        credentials.write_passwords(self._passwords, credentials.server_users(self.password(credentials.AGGREGATOR)))

    def _accepts(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1):
                return True
        except OSError:
            return False

    def _last_words(self) -> str:
        try:
            lines = self._log_file.read_text(errors="replace", encoding="utf-8").splitlines()
        except OSError:
            lines = []
        return " / ".join(lines[-3:]) or f"it left no log in {self._log_file}"
