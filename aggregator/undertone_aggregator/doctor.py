"""`undertone doctor`: what a server's folder and its broker are like, one line each, with the fix."""

import os
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from undertone_aggregator.addresses import external_addresses, read_password
from undertone_aggregator.binding import RETIRED, STATE
from undertone_aggregator.broker import HOST
from undertone_aggregator.broker_options import DIRECT, EXTERNAL
from undertone_aggregator.collect.link import Address, Outlet
from undertone_aggregator.collect.store import open_store
from undertone_aggregator.config import Config
from undertone_aggregator.home import SERVER, Home
from undertone_aggregator.signing import read_key
from undertone_shared.campaign import header
from undertone_shared.errors import Invalid
from undertone_shared.topics import config_topic

OK, WARNING, FAILURE = "ok", "warning", "failure"
_LEAST_FREE = 200 << 20
_SLOW_SYNC_SECONDS = 0.2
_SECRETS = ("signing.key", "aggregator.password", "analyst.password", "broker/passwords", "broker/access")
# What a device's outbox holds, unless its firmware says otherwise: `undertone_device.reporter.DEFAULT_OUTBOX`.
OUTBOX = 96
_LEAST_HOURS = 1.0
_WAIT_SECONDS = 5.0
_QUIET_SECONDS = 0.5
# A clock before this stands at its default.
_EARLIEST = 1_700_000_000


@dataclass(frozen=True)
class Finding:
    """``result``: ok, warning or failure; ``fix``: what to do, empty when there is nothing."""

    check: str
    result: str
    sentence: str
    fix: str = ""

    def row(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


def examine(folder: Path) -> Iterator[Finding]:
    """All findings, in order; never raises for what it finds."""
    try:
        home = Home(folder)
    except Invalid as wrong:
        yield Finding("folder", FAILURE, str(wrong), f"undertone init {folder}")
        return
    yield from _files(home)
    yield from _machine(home)
    configs = []
    for name in home.names():
        try:
            configs.append(home.config(name))
        except (Invalid, OSError) as wrong:
            yield Finding(f"campaign {name}", FAILURE, str(wrong), f"edit {home.file(name)}")
    if not home.names():
        yield Finding("campaigns", WARNING, "there is none yet", f"undertone campaign create {folder} NAME ...")
    for config in configs:
        yield _store(config)
    if configs:
        yield from _broker(configs)


def _files(home: Home) -> Iterator[Finding]:
    for name in (SERVER, *_SECRETS):
        path = home.folder / name
        if not path.exists():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            yield Finding("modes", FAILURE, f"{path} may be used by others: mode {mode:04o}", f"chmod 600 {path}")
            return
    yield Finding("modes", OK, "nobody else reads the server's files")
    try:
        read_key(home.folder / "signing.key")
        yield Finding("signing key", OK, "campaigns are signed")
    except (Invalid, OSError) as wrong:
        yield Finding(
            "signing key", WARNING, f"campaigns are not signed: {wrong}", "restore signing.key, see docs/keys.md"
        )


def _machine(home: Home) -> Iterator[Finding]:
    free = shutil.disk_usage(home.folder).free
    said = f"{free >> 20} MB are free"
    yield Finding("disk", OK, said) if free > _LEAST_FREE else Finding("disk", FAILURE, said, "make room")
    start = time.perf_counter()
    with tempfile.TemporaryFile(dir=home.folder) as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.perf_counter() - start
    said = f"a write reaches the disk in {1000 * seconds:.1f} ms"
    yield Finding("sync", OK if seconds < _SLOW_SYNC_SECONDS else WARNING, said)
    now = time.time()
    said = time.strftime("it is %Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    yield Finding("clock", OK, said) if now > _EARLIEST else Finding("clock", FAILURE, said, "set the clock (NTP)")


def _store(config: Config) -> Finding:
    name = config.campaign.name
    check = f"store of {name}"
    try:
        with open_store(config.store_url, campaign=name, read_only=True) as store:
            epochs, counted = store.epoch_count(), store.outcomes()["counted"]
            store.partial(store.newest_slot() or 0)
        return Finding(check, OK, f"{epochs} epochs, {counted} reports counted")
    except (Invalid, OSError) as wrong:
        if "there is no store" in str(wrong):
            return Finding(check, OK, "not made yet: the server makes it")
        return Finding(check, FAILURE, str(wrong), "restore it from a backup: undertone restore")


def _absence(config: Config) -> Finding:
    """How long devices keep reports while a direct endpoint is away."""
    hours = OUTBOX * config.campaign.slot_seconds / 3600
    said = f"devices keep {OUTBOX} reports, {hours:.3g} hours, while this server is away; nobody else queues them"
    fix = "be back within that time, or use a broker, which queues"
    return Finding("absence", OK, said) if hours >= _LEAST_HOURS else Finding("absence", WARNING, said, fix)


def _broker(configs: list[Config]) -> Iterator[Finding]:
    config = configs[0]
    if config.broker.mode == DIRECT:
        yield _absence(config)
    try:
        address = _address(config)
    except (Invalid, OSError) as wrong:
        yield Finding("broker", FAILURE, str(wrong), "see [broker] in server.toml")
        return
    if address is None:
        yield Finding("broker", OK, f"mode is {config.broker.mode}, and it does not run now: nothing to ask")
        return
    try:
        with socket.create_connection((address.host, address.port), _WAIT_SECONDS) as plain:
            context = address.tls_context()
            if context is not None:
                context.wrap_socket(plain, server_hostname=address.host).close()
    except OSError as wrong:
        fix = "start it; check host, port and ca_file in [broker]"
        yield Finding("broker", FAILURE, f"{address.host}:{address.port}: {wrong}", fix)
        return
    how = "TLS, certificate and name verified" if address.tls_context() is not None else "no TLS"
    yield Finding("broker", OK, f"{address.host}:{address.port} answers ({how})")
    if config.broker.mode == EXTERNAL or config.broker.mode != DIRECT:
        yield from _sessions(config, address)
        yield from _retained(configs, address)


def _address(config: Config) -> Address | None:
    """How to reach the broker; None where it does not run."""
    if config.broker.mode == EXTERNAL:
        return external_addresses(config)[0]
    port = config.path(config.broker.directory) / "port"
    pid = config.path(config.broker.directory) / "mosquitto.pid"
    if config.broker.mode == DIRECT or not port.exists() or not pid.exists():
        return None
    file = config.path(config.broker.password_file or f"{config.broker.directory}/aggregator.password")
    return Address(HOST, int(port.read_text()), config.broker.user, read_password(file), worker_users=True)


class _Client:
    """A connection that remembers its answer, what it hears, and whether it was thrown off."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.refused: str | None = None
        self.heard: list[str] = []
        self.lost = threading.Event()
        self._answered = threading.Event()
        self._client = address.client(client_id, clean_session=True)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = lambda *_: self.lost.set()
        self._client.on_message = lambda _c, _d, message: self.heard.append(message.topic)
        self._client.connect(address.host, address.port, address.keepalive)
        self._client.loop_start()
        if not self._answered.wait(_WAIT_SECONDS):
            self.refused = "no answer"

    def _on_connect(self, _c: Any, _d: Any, _f: Any, reason: Any, _p: Any) -> None:
        self.refused = str(reason) if reason.is_failure else None
        self._answered.set()

    def publish(self, topic: str) -> None:
        self._client.publish(topic, b"undertone doctor", qos=1)

    def subscribe(self, topic: str) -> None:
        done = threading.Event()
        self._client.on_subscribe = lambda *_: done.set()
        self._client.subscribe(topic, 1)
        done.wait(_WAIT_SECONDS)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        self._client.on_connect = self._client.on_disconnect = self._client.on_message = None


def _sessions(config: Config, address: Address) -> Iterator[Finding]:
    """With the last worker's user, which nobody uses unless 64 workers run: a server that runs is left alone."""
    from undertone_aggregator.collect.sessions import WORKER_USERS

    worker = address.of_worker(WORKER_USERS - 1)
    client = _Client(worker, "undertone-doctor")
    try:
        if client.refused is not None:
            fix = "give the broker the password file again; worker_users = false where it has but one user"
            yield Finding("password", FAILURE, worker.refusal(client.refused), fix)
            return
        yield Finding("password", OK, f"the broker knows the user {worker.user}")
        topic = config_topic(config.broker.prefix, "doctor")
        client.subscribe(topic)
        client.publish(topic)
        time.sleep(_QUIET_SECONDS)
        fix = "give the broker the access file again (acl_file)"
        if client.heard:
            yield Finding("access", FAILURE, f"{worker.user} may publish {topic}: no access rules are in force", fix)
        else:
            yield Finding("access", OK, "a worker may not publish campaigns")
        if worker.user != address.user:
            yield _client_ids(address, worker, client)
    finally:
        client.close()


def _client_ids(address: Address, worker: Address, client: _Client) -> Finding:
    other = address.of_worker(int(worker.user.rpartition("-")[2]) - 1)
    thief = _Client(other, "undertone-doctor")
    taken = client.lost.wait(_QUIET_SECONDS)
    thief.close()
    if taken:
        said = "another user takes a session by its client id: a device could delete what waits for the server"
        return Finding("client ids", FAILURE, said, "set use_username_as_clientid true in mosquitto.conf")
    return Finding("client ids", OK, "a session belongs to its user")


def _retained(configs: list[Config], address: Address) -> Iterator[Finding]:
    """Asked as a worker, so that a running server keeps its connection."""
    from undertone_aggregator.collect.sessions import WORKER_USERS

    stop = threading.Event()
    outlet = Outlet(
        address.of_worker(WORKER_USERS - 1), "undertone-doctor-2", watch=[config_topic(configs[0].broker.prefix, "+")]
    )
    outlet.start()
    timer = threading.Timer(_WAIT_SECONDS, stop.set)
    timer.start()
    try:
        for config in configs:
            name, topic = config.campaign.name, config_topic(config.broker.prefix, config.campaign.name)
            yield _campaign(config, f"broadcast of {name}", outlet.retained(topic, stop))
    finally:
        timer.cancel()
        outlet.stop()


def _state(config: Config) -> str | None:
    try:
        with open_store(config.store_url, campaign=config.campaign.name, read_only=True) as store:
            return store.meta().get(STATE)
    except (Invalid, OSError):
        return None


def _campaign(config: Config, check: str, message: bytes | None) -> Finding:
    if not message and _state(config) == RETIRED:
        return Finding(check, OK, "the campaign is retired, and off the air")
    if not message:
        return Finding(check, WARNING, "no campaign is on the air", "start the server: undertone serve")
    try:
        fingerprint = header(message)[1]
        with open_store(config.store_url, campaign=config.campaign.name, read_only=True) as store:
            known = fingerprint in {epoch.campaign.fingerprint for epoch in store.epochs()}
    except (Invalid, OSError) as wrong:
        return Finding(check, FAILURE, str(wrong), "let the server broadcast it again: restart it")
    if not known:
        return Finding(check, FAILURE, "the store does not know what is broadcast", "check the path in [store]")
    return Finding(check, OK, "what is broadcast is the store's")
