"""A mosquitto on the loopback address for one test.

Everybody may connect, and it can be killed and started again on the same port.
"""

import socket
import subprocess
import time
from pathlib import Path

TLS = Path(__file__).parents[1] / "device/tls"


class PrivateBroker:
    """A broker that one test may kill and start again.

    ``certificate`` names a file of tests/device/tls, with which the broker uses TLS. ``rules`` are lines of an ACL
    file. ``further``: more lines of its configuration.
    """

    def __init__(
        self,
        binary: str,
        folder: Path,
        port: int,
        certificate: str | None = None,
        rules: str | None = None,
        further: list[str] | None = None,
    ):
        self.port = port
        self.log = folder / "mosquitto.log"
        lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "user root"]
        if certificate:
            lines += [f"certfile {TLS / certificate}.pem", f"keyfile {TLS / certificate}.key"]
        if rules:
            (folder / "acl").write_text(rules, encoding="utf-8")
            lines.append(f"acl_file {folder / 'acl'}")
        lines += further or []
        config = folder / "mosquitto.conf"
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._command = [binary, "-c", str(config)]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        for _ in range(1200):
            if self._process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(self.log.read_text(encoding="utf-8"))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> "PrivateBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
