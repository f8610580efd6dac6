"""Sends alerts by the library Apprise, which knows web hooks, e-mail and many services; in a thread of its own."""

import contextlib
import hashlib
import json
import logging
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertone_aggregator.base.files import write_private
from undertone_aggregator.base.log import Journal
from undertone_aggregator.base.packages import ALERTS, check_packages
from undertone_aggregator.server.alerts import Alerts, Message, Problem, lasting_problems
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.server.supervisor import Server

TEST = Message("Undertone: test", "This is a test of the alerts; nothing is wrong.", good=True)
_LOOK_SECONDS = 1.0
# Seconds that a stopping server waits for a message that is being sent.
_STOP_SECONDS = 5.0


class AlertService:
    """A place to which alerts go.

    ``name``: the service, and the line of the address in its file. The log shows this, because the address holds
    secrets.
    """

    def __init__(self, file: Path, line: int, url: str) -> None:
        from apprise import Apprise

        service = Apprise.instantiate(url)
        if service is None:
            raise Invalid(f"line {line} of {file} is not an address that Apprise knows, such as mailtos:// or json://")
        self.name = f"{service.service_name} in line {line} of {file.name}"
        # Stands for the address in the file of sent alerts, because that file must not hold the address itself.
        self.key = hashlib.sha256(url.encode()).hexdigest()[:16]
        self._url = url

    def send(self, message: Message) -> bool:
        """Send a message; return False if the service did not take it."""
        from apprise import Apprise, NotifyType

        service = Apprise()
        service.add(self._url)
        kind = NotifyType.SUCCESS if message.good else NotifyType.FAILURE
        return bool(service.notify(body=message.body, title=message.title, notify_type=kind))


def read_addresses(file: Path) -> list[AlertService]:
    """Return the services of the addresses in a file, one per line. Empty lines, and those that begin with #, are
    skipped.

    Raises Invalid, whose message never contains an address. Raises OSError.
    """
    check_packages(ALERTS)
    # Apprise logs each failure with the host's name, and without a handler Python would print that.
    logging.getLogger("apprise").addHandler(logging.NullHandler())
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        raise Invalid(f"the mode of {file} is {mode:04o}, expected 0600: its addresses contain secrets")
    lines = enumerate(map(str.strip, file.read_text(encoding="utf-8").splitlines()), 1)
    found = [AlertService(file, n, line) for n, line in lines if line and not line.startswith("#")]
    if not found:
        raise Invalid(f"{file} has no address, expected one per line")
    return found


@contextlib.contextmanager
def run_alerts(server: "Server", journal: Journal) -> Iterator[None]:
    """Send alerts as [server] alerts says, until the context ends. Without this option do nothing. Raises Invalid,
    OSError.
    """
    options = server.home.server
    if options.alerts is None:
        yield
        return
    addresses = read_addresses(server.home.folder / options.alerts)
    sender = Sender(server, addresses, journal, options.alert_seconds)
    stop = threading.Event()
    thread = threading.Thread(target=sender.run, args=(stop,), name="alerts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_STOP_SECONDS)


class Sender:
    """Checks a server's problems each second, and sends what is due to each address."""

    def __init__(self, server: "Server", addresses: list[AlertService], journal: Journal, wait: float) -> None:
        self._server = server
        self._journal = journal
        # A server that starts again reads here what it sent before.
        self._file = server.home.state.with_suffix(".alerts.json")
        sent = _read_sent(self._file)
        self._alerts = [(address, Alerts(wait, sent.get(address.key, {}))) for address in addresses]
        self._counts: Counter[Problem] = Counter()

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop`` is set. A service that is slow or does not answer delays only alerts."""
        while not stop.wait(_LOOK_SECONDS):
            self.look(time.time(), time.monotonic())

    def look(self, now: float, ticks: float) -> None:
        """Note the problems at Unix second ``now``, and send what is due."""
        server, counts = self._server, Counter(self._server.journal.alarm_counts)
        events, self._counts = counts - self._counts, counts
        seen = {name: member.lasting for name, member in tuple(server.members.items())}
        lasting = lasting_problems(server.state(), seen, now)
        for address, alerts in self._alerts:
            alerts.note(lasting, events, now, ticks)
            message = alerts.message(ticks)
            if message is None:
                continue
            if address.send(message):
                alerts.delivered(ticks)
                self._write()
            else:
                alerts.failed(ticks)
                self._journal.say_once("alerts", f"the alert cannot be sent to {address.name}, trying again later")

    def _write(self) -> None:
        sent = {address.key: [[*problem, level] for problem, level in a.sent.items()] for address, a in self._alerts}
        try:
            write_private(self._file, json.dumps(sent), durable=False)
        except OSError as wrong:
            self._journal.say_once(
                "alerts", f"a restart may repeat alerts, because {self._file} was not written: {wrong}"
            )


def _read_sent(file: Path) -> dict[str, dict[Problem, int]]:
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        rows: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return {key: {(campaign, event): level for campaign, event, level in sent} for key, sent in rows.items()}
    return {}
