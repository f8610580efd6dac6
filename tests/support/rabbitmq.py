"""A RabbitMQ for one test, with its MQTT plugin and quorum queues.

It runs on the loopback address without special rights, and is removed afterwards.
"""

import base64
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

BINARIES = Path("/usr/lib/rabbitmq/bin")
MISSING = "RabbitMQ was not found: apt-get install --no-install-recommends rabbitmq-server"
_START_SECONDS = 90.0


class RabbitMQ:
    """One node. ``users``: names with their passwords. Each user may do everything."""

    host = "127.0.0.1"

    def __init__(self, port: int, ports: tuple[int, int], users: dict[str, str]) -> None:
        self.port = port
        self._folder = Path(tempfile.mkdtemp(prefix="undertone-rabbitmq-"))
        self._epmd_port, distribution = ports
        self._as_user = ["runuser", "-u", "rabbitmq", "--"] if os.geteuid() == 0 else []
        self._node = f"undertone{port}@localhost"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self._folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "none"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": self.host,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        files = {
            "rabbitmq.conf": f"""
listeners.tcp = none
mqtt.listeners.tcp.1 = {self.host}:{port}
mqtt.allow_anonymous = false
mqtt.prefetch = 2000
mqtt.subscription_ttl = 86400000
load_definitions = {self._folder}/definitions.json
""",
            "advanced.config": "[{rabbitmq_mqtt, [{durable_queue_type, quorum}]}].\n",
            "plugins": "[rabbitmq_mqtt].\n",
            "definitions.json": json.dumps(_definitions(users)),
        }
        for name, text in files.items():
            (self._folder / name).write_text(text, encoding="utf-8")
        if self._as_user:
            for path in (self._folder, *self._folder.iterdir()):
                shutil.chown(path, "rabbitmq")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the node, also after it was killed, and wait until it accepts connections."""
        with (self._folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                [*self._as_user, BINARIES / "rabbitmq-server"],
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            assert self._process.poll() is None, (self._folder / "out").read_text(encoding="utf-8")
            assert time.monotonic() < deadline, (self._folder / "out").read_text(encoding="utf-8")
            with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1):
                return
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill the whole node by kill -9."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def queue_types(self) -> set[str]:
        """The kinds of the queues that remain when a connection ends."""
        done = subprocess.run(
            [
                *self._as_user,
                BINARIES / "rabbitmqctl",
                "-q",
                "-n",
                self._node,
                "list_queues",
                "auto_delete",
                "type",
                "--no-table-headers",
            ],
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            encoding="utf-8",
            check=True,
            timeout=60,
        )
        queues = [line.split() for line in done.stdout.splitlines()]
        return {kind for vanishes, kind in queues if vanishes == "false"}

    def close(self) -> None:
        """Stop the node and its port mapper, which would go on running, and remove the files."""
        self.kill()
        # The port mapper refuses to end while it believes that the node runs.
        kill, deadline = ["epmd", "-port", str(self._epmd_port), "-kill"], time.monotonic() + 5
        while subprocess.run(kill, capture_output=True, check=False).returncode and time.monotonic() < deadline:
            time.sleep(0.2)
        shutil.rmtree(self._folder, ignore_errors=True)


def _definitions(users: dict[str, str]) -> dict[str, object]:
    everything = {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    return {
        "vhosts": [{"name": "/"}],
        "users": [
            {"name": name, "password_hash": _hash(password), "hashing_algorithm": "rabbit_password_hashing_sha256",
             "tags": ""}
            for name, password in users.items()
        ],
        "permissions": [{"user": name, **everything} for name in users],
    }  # fmt: skip


def _hash(password: str) -> str:
    salt = b"salt"
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
