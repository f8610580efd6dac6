"""The findings of `undertone doctor` about a broker: its local files, its answers, and its retained campaigns."""

import socket
import ssl
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from undertone_aggregator.base.endings import notice, time_left
from undertone_aggregator.campaign.binding import RETIRED, STATE
from undertone_aggregator.estimate.guarantee import lasting
from undertone_aggregator.mqtt.addresses import external_addresses
from undertone_aggregator.mqtt.link import Address, Outlet
from undertone_aggregator.mqtt.mosquitto import CONFIG_FILE
from undertone_aggregator.mqtt.signing import read_key
from undertone_aggregator.settings.config import Config
from undertone_aggregator.store.store import open_store
from undertone_shared.campaign import body_of, digest_of, header, signature_of
from undertone_shared.ed25519 import verify
from undertone_shared.errors import Invalid
from undertone_shared.topics import config_topic

OK, WARNING, FAILURE = "ok", "warning", "failure"
# Advice to the operator if the file of the signing key is missing or cannot be used.
SIGNING_KEY = 'correct this file, or restore it from a backup: "Signing keys" in docs/operator.md'
# Default number of reports in a device's outbox: `undertone_device.core.ledger.DEFAULT_OUTBOX`.
OUTBOX = 96
_LEAST_HOURS = 1.0
# Least number of messages that the broker must be able to queue for a server that is away.
_LEAST_QUEUED = 100_000
_WAIT_SECONDS = 5.0
_QUIET_SECONDS = 0.5


@dataclass(frozen=True)
class Finding:
    """One finding. ``result``: ok, warning or failure; ``fix``: what to do, empty if nothing is to be done."""

    check: str
    result: str
    sentence: str
    fix: str = ""

    def row(self) -> dict[str, str]:
        """Return the finding as a JSON object."""
        return asdict(self)


def _settings(config: Config) -> Iterator[Finding]:
    """Check persistence, queues, client ids and access in the broker's local file. MQTT does not report them."""
    path = config.path(config.broker.directory) / CONFIG_FILE
    if not path.is_file():
        summary = f"there is no {path}, so doctor cannot see the persistence and the queues of this broker"
        yield Finding(
            "broker's file", WARNING, summary, 'check both on the broker: "A broker of yours" in aggregator/README.md'
        )
        return
    lines = dict(line.partition(" ")[::2] for line in path.read_text(errors="replace", encoding="utf-8").splitlines())
    queued = lines.get("max_queued_messages", "1000")
    wrong = [
        sentence
        for sentence, holds in (
            ("persistence true", lines.get("persistence") == "true"),
            (f"max_queued_messages {_LEAST_QUEUED} or more", queued.isdecimal() and int(queued) >= _LEAST_QUEUED),
            ("use_username_as_clientid true", lines.get("use_username_as_clientid") == "true"),
            ("acl_file", "acl_file" in lines),
            ("allow_anonymous false", lines.get("allow_anonymous") == "false"),
        )
        if not holds
    ]
    if wrong:
        yield Finding(
            "broker's file",
            FAILURE,
            f"{path} does not set {', '.join(wrong)}",
            "set what is missing, and restart the broker",
        )
        return
    summary = (
        f"a broker that uses {path} keeps sessions on disk, queues {queued} messages for each session, and ties client"
        " ids to users"
    )
    yield Finding("broker's file", OK, summary)


def _end(secure: ssl.SSLSocket) -> float | None:
    """Return the Unix second at which the certificate that the broker showed ends; None if unknown."""
    shown = secure.getpeercert() or {}
    ends = shown.get("notAfter")
    return None if not isinstance(ends, str) else ssl.cert_time_to_seconds(ends)


def _absence(configs: list[Config]) -> Iterator[Finding]:
    """Check for how long devices store reports while the server's own endpoint is away.

    There is a finding for each campaign whose time is too short. If no time is too short, there is one for the campaign
    with the shortest time.
    """
    hours = {
        config.campaign.name: OUTBOX * config.campaign.slot_seconds * config.campaign.stride / 3600
        for config in configs
    }
    short = {name: each for name, each in hours.items() if each < _LEAST_HOURS}
    shortest = min(hours, key=lambda name: hours[name])
    for name, each in (short or {shortest: hours[shortest]}).items():
        sentence = (
            f"while this server is away, no broker queues reports, and each device of {name} keeps its last {OUTBOX}"
            f" reports, those of {lasting(round(3600 * each))} (more or fewer if the device was added with --absence)"
        )
        fix = "never stop the server for longer, or add devices with a longer --absence such as 6h, or use a broker"
        yield Finding("absence", WARNING, sentence, fix) if name in short else Finding("absence", OK, sentence)


def examine_broker(configs: list[Config]) -> Iterator[Finding]:
    """Yield findings about the broker of these campaigns, as far as they can be seen from this machine."""
    config = configs[0]
    if not config.broker.source.broker:
        yield from _absence(configs)
        return
    yield from _settings(config)
    try:
        address = external_addresses(config)[0]
    except (Invalid, OSError) as wrong:
        yield Finding("broker", FAILURE, str(wrong), "correct [broker] in server.toml")
        return
    try:
        socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as wrong:
        yield Finding(
            "name", FAILURE, f"no address of {address.host} was found: {wrong}", "check host in [broker], and the DNS"
        )
        return
    end = None
    try:
        with socket.create_connection((address.host, address.port), _WAIT_SECONDS) as plain:
            context = address.tls_context()
            if context is not None:
                with context.wrap_socket(plain, server_hostname=address.host) as secure:
                    end = _end(secure)
    except OSError as wrong:
        fix = "start the broker, renew its certificate, or correct host, port or ca_file in [broker]"
        yield Finding("broker", FAILURE, f"no connection to the broker at {address.host}:{address.port}: {wrong}", fix)
        return
    how = "TLS, certificate and name verified" if address.tls_context() is not None else "no TLS"
    yield Finding("broker", OK, f"{address.host}:{address.port} accepts connections ({how})")
    if end is not None:
        now = time.time()
        fix = "renew the certificate, and send SIGHUP to the broker" if notice(end, now) is not None else ""
        sentence = f"the broker's certificate ends in {time_left(end, now)}"
        yield Finding("certificate", WARNING if fix else OK, sentence, fix)
    if (yield from _sessions(config, address)):
        yield from _retained(configs, address)


class _Client:
    """A connection that remembers whether it was refused or not answered, whether it has received anything, and
    whether the broker closed it.
    """

    def __init__(self, address: Address, client_id: str) -> None:
        self.refused: str | None = None
        self.silent = False
        self.heard = threading.Event()
        self.lost = threading.Event()
        self._answered = threading.Event()
        self._client = address.client(client_id, clean_session=True)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = lambda *_: self.lost.set()
        self._client.on_message = lambda *_: self.heard.set()
        self._client.connect(address.host, address.port, address.keepalive)
        self._client.loop_start()
        self.silent = not self._answered.wait(_WAIT_SECONDS)

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


def _sessions(config: Config, address: Address) -> Generator[Finding, None, bool]:
    """Log in as the last worker's user, and yield findings about its password, access rules and client ids. Return True
    if the broker accepted this user.

    A server uses this user only if it runs 64 workers, so a running server is not disturbed.
    """
    from undertone_aggregator.mqtt.sessions import WORKER_USERS

    worker = address.of_worker(WORKER_USERS - 1)
    client = _Client(worker, "undertone-doctor")
    try:
        if client.silent:
            sentence = worker.unanswered("no answer")
            yield Finding("broker", FAILURE, sentence, "correct host, port or ca_file in [broker]")
            return False
        if client.refused is not None:
            fix = "give the broker the password file again, or set worker_users = false if all workers share one user"
            yield Finding("password", FAILURE, worker.refusal(client.refused), fix)
            return False
        yield Finding("password", OK, f"the broker accepts the user {worker.user}")
        if worker.user == address.user:
            # All workers share the server's own user, which publishes campaigns.
            return True
        topic = config_topic(config.broker.prefix, "doctor")
        client.subscribe(topic)
        client.publish(topic)
        heard = client.heard.wait(_QUIET_SECONDS)
        fix = "give the broker the access file again (acl_file)"
        if heard:
            sentence = f"the user {worker.user} can publish to {topic}, which the broker's access rules must not allow"
            yield Finding("access", FAILURE, sentence, fix)
        else:
            yield Finding("access", OK, f"the user {worker.user} cannot publish campaigns")
        yield _client_ids(address, worker, client)
        return True
    finally:
        client.close()


def _client_ids(address: Address, worker: Address, client: _Client) -> Finding:
    other = address.of_worker(int(worker.user.rpartition("-")[2]) - 1)
    thief = _Client(other, "undertone-doctor")
    taken = client.lost.wait(_QUIET_SECONDS)
    thief.close()
    if thief.silent or thief.refused is not None:
        why = other.unanswered("no answer") if thief.silent else other.refusal(thief.refused)
        sentence = f"doctor cannot see whether a user can take over another user's session: {why}"
        return Finding("client ids", WARNING, sentence, "give the broker the password file again")
    if taken:
        sentence = (
            "a user can take over another user's session with the same client id: a device could delete the server's"
            " messages"
        )
        return Finding("client ids", FAILURE, sentence, "set use_username_as_clientid true in mosquitto.conf")
    return Finding("client ids", OK, "no user can take over the session of another user")


def _retained(configs: list[Config], address: Address) -> Iterator[Finding]:
    """Read the retained campaigns as a worker, so that a running server keeps its connection."""
    from undertone_aggregator.mqtt.sessions import WORKER_USERS

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
        return Finding(check, OK, "the campaign is retired, and nothing broadcasts it")
    if not message:
        return Finding(
            check,
            WARNING,
            "nothing broadcasts the campaign",
            "start the server: undertone serve; if it runs, read its log",
        )
    try:
        fingerprint = header(message)[1]
    except Invalid as wrong:
        return Finding(check, FAILURE, str(wrong), "restart the server, which broadcasts the campaign again")
    try:
        with open_store(config.store_url, campaign=config.campaign.name, read_only=True) as store:
            in_store = fingerprint in {epoch.campaign.fingerprint for epoch in store.epochs()}
    except (Invalid, OSError) as wrong:
        return Finding(check, FAILURE, str(wrong), "check the path in [store], or restore the store from a backup")
    if not in_store:
        return Finding(
            check, FAILURE, "the store does not contain the campaign that is broadcast", "check the path in [store]"
        )
    path = config.secret(config.server.signing_key)
    try:
        key = read_key(path)
    except (Invalid, OSError) as wrong:
        sentence = f"the broadcast campaign is in the store; its signature cannot be checked: {wrong}"
        return Finding(check, WARNING, sentence, SIGNING_KEY)
    if not verify(bytes.fromhex(key.public), digest_of(body_of(message)), signature_of(message)):
        fix = "restore the signing key that the devices' policies name, and restart the server"
        return Finding(check, FAILURE, f"the broadcast campaign is not signed by the key in {path}", fix)
    return Finding(check, OK, f"the broadcast campaign is in the store and signed by the key in {path.name}")
