"""`undertone aggregate`: broker, store, ingest and coordinator, put together and taken apart."""

import contextlib
import ipaddress
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from undertone_aggregator.broker import ManagedBroker
from undertone_aggregator.collect.ingest import Failpoint, nowhere
from undertone_aggregator.collect.link import Address, Outlet
from undertone_aggregator.config import Config
from undertone_aggregator.journal import Journal
from undertone_aggregator.running import Options, Running
from undertone_shared.errors import Invalid
from undertone_shared.topics import config_topic


def serve(
    config: Config,
    stop: threading.Event,
    journal: Journal,
    *,
    clock: Callable[[], float] = time.time,
    failpoint: Failpoint = nowhere,
    apply: bool = False,
    take_over: bool = False,
) -> None:
    """Run one campaign until ``stop`` is set; then everything read is committed and acknowledged, a managed broker
    stopped.

    The options: see `undertone_aggregator.running.Options`. Raises Invalid for a store of another campaign, a plan that
    has changed, a campaign of another server, bad files, or a broker that does not start.
    """
    options = Options(clock, failpoint, apply, take_over)
    with open_broker(config, journal) as address:
        running = Running(config, address, journal, options)
        with open_outlet(config, address, journal) as outlet:
            running.run(outlet, stop)


@contextlib.contextmanager
def open_outlet(config: Config, address: Address, journal: Journal) -> Iterator[Outlet]:
    """The connection that publishes, connecting; it hears what anybody publishes as campaigns."""
    watch = [config_topic(config.broker.prefix, "+")]
    name = f"undertone-{secrets.token_hex(16)}-coordinator"
    outlet = Outlet(address, name, lambda sentence: journal.say_once("outlet", sentence), watch)
    outlet.start()
    try:
        yield outlet
    finally:
        outlet.stop()


def is_loopback(host: str) -> bool:
    """Whether what is sent to this host stays on the machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def external_address(config: Config) -> Address:
    """How to reach a broker that is not managed: TLS, unless on this machine or ``insecure``. Raises Invalid."""
    settings = config.broker
    assert settings.password_file is not None
    password_file = config.path(settings.password_file)
    tls = settings.ca_file is not None or not (settings.insecure or is_loopback(settings.host))
    return Address(
        settings.host,
        settings.port or (8883 if tls else 1883),
        settings.user,
        read_password(password_file),
        None if settings.ca_file is None else config.path(settings.ca_file),
        settings.keepalive,
        tls,
        settings.worker_users,
        password_file,
    )


@contextlib.contextmanager
def open_broker(config: Config, journal: Journal) -> Iterator[Address]:
    """The address of the broker; a managed one runs meanwhile."""
    settings = config.broker

    def named(name: str | None) -> Path | None:
        return None if name is None else config.path(name)

    password_file = named(settings.password_file)
    password = "" if password_file is None else read_password(password_file)
    if not settings.managed:
        yield external_address(config)
        return
    broker = ManagedBroker(
        config.path(settings.directory),
        settings.port,
        prefix=settings.prefix,
        passwords=named(settings.mosquitto_passwords),
        access=named(settings.mosquitto_acl),
    )
    with broker:
        how = "a broker of an earlier run goes on" if broker.adopted else "mosquitto runs"
        journal.say("broker", f"{how} on {broker.host}:{broker.port}", port=broker.port, pid=broker.pid)
        yield Address(
            broker.host,
            broker.port,
            settings.user,
            password or broker.password(settings.user),
            None,
            settings.keepalive,
            worker_users=settings.worker_users,
            password_file=password_file,
        )


def read_password(path: Path) -> str:
    """The password in a file of one line. Raises Invalid when there is none."""
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not text or "\n" in text:
        raise Invalid(f"{path} holds {len(text.splitlines())} lines, expected the password alone")
    return text
