"""`undertone doctor`: findings about a server's folder and its broker, one line each, with the fix."""

import os
import shlex
import shutil
import socket
import ssl
import stat
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from undertone_aggregator.base.endings import notice, time_left
from undertone_aggregator.base.lock import held
from undertone_aggregator.base.open_files import limit
from undertone_aggregator.base.plural import many
from undertone_aggregator.base.room import room
from undertone_aggregator.campaign.state import read_state, state_of
from undertone_aggregator.mqtt.addresses import PLAIN_PORT, TLS_PORT, WEBSOCKET_PATH
from undertone_aggregator.mqtt.certificates import certificate_ends, cure
from undertone_aggregator.mqtt.credentials import servers_names
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.mqtt.endpoint.passwords import read_passwords
from undertone_aggregator.mqtt.signing import read_key
from undertone_aggregator.server.alert_sender import TEST, read_addresses
from undertone_aggregator.server.folder import CAMPAIGNS, SERVER, Home
from undertone_aggregator.settings.config import Config
from undertone_aggregator.settings.options import family_of, split_address
from undertone_aggregator.settings.server_options import ServerOptions
from undertone_aggregator.store.kept import kept_by_name
from undertone_aggregator.store.store import NoStore, OtherStore, open_store
from undertone_aggregator.store.store_address import store_address
from undertone_operate.examine.doctor_broker import FAILURE, OK, SIGNING_KEY, WARNING, Finding, examine_broker
from undertone_operate.fleet.join_codes import JoinCodes
from undertone_operate.join.openapi import PATH as DESCRIPTION_PATH
from undertone_operate.join.tls import JoinTls
from undertone_shared.errors import Invalid

_LEAST_FREE = 200 << 20
_SLOW_SYNC_SECONDS = 0.2
_NO_AUDIT = "if nobody needs these rows, set audit = false in [store] of server.toml"
_DATABASE = "start the database, or correct path in [store] of server.toml"
_UNREADABLE = "let the server's user read the store's file, or restore the folder from a backup with undertone restore"

_WRITABLE = "free disk space, or let the server's user write in this folder"
_SECRETS = (
    "signing.key",
    "aggregator.password",
    "broker/passwords",
    "broker/access",
    "broker/server.key",
    "tls/ca.key",
)
_WAIT_SECONDS = 5.0
# Unix second in November 2023. A clock that shows an earlier time was never set.
_EARLIEST = 1_700_000_000


def examine(folder: Path, *, alert_test: bool = False) -> Iterator[Finding]:
    """Yield all findings. A problem of the folder is a finding, and not an exception.

    ``alert_test``: send a test message to each address of alerts.
    """
    if not (folder / SERVER).is_file():
        yield Finding("folder", FAILURE, f"{folder} contains no {SERVER}", f"undertone init {_quoted(folder)}")
        return
    home = Home(folder)
    yield from _files(home)
    try:
        server, disk, _, _ = home.server, home.disk, home.join, home.broker_options
    except (Invalid, OSError) as wrong:
        yield Finding("server", FAILURE, str(wrong), f"edit {folder / SERVER}")
        return
    yield from _signing_key(home.folder / server.signing_key)
    yield from _state(home)
    yield from _machine(disk)
    configs = []
    for name in home.names():
        try:
            configs.append(home.config(name))
        except (Invalid, OSError) as wrong:
            yield Finding(f"campaign {name}", FAILURE, str(wrong), f"edit {name}.toml in {home.folder / CAMPAIGNS}")
    if not home.names():
        fix = f"undertone campaign create {_quoted(folder)} NAME ..."
        yield Finding("campaigns", WARNING, "there is no campaign yet", fix)
    yield from _ports(server)
    yield from _join(home)
    yield from _alerts(home, server, alert_test)
    yield from _devices_port(home)
    for config in configs[:1]:
        yield from _room(home, config)
        yield from _websocket(config)
        yield from _certificates(config)
    for config in configs:
        yield from _ending(home, config)
        yield _store(config)
        no_landing = f"if nobody needs these files, remove [landing] from {home.file(config.campaign.name)}"
        for fix, sentences in (
            (_NO_AUDIT, kept_by_name(config.store.audit, None)),
            (no_landing, kept_by_name(False, config.landing.kept_days)),
        ):
            for sentence in sentences:
                yield Finding(f"privacy of {config.campaign.name}", WARNING, sentence, fix)
    if configs:
        yield from examine_broker(configs)


def _quoted(path: Path) -> str:
    """Return a path as a word of a shell's command line."""
    return shlex.quote(str(path))


def _state(home: Home) -> Iterator[Finding]:
    """Yield findings from the state that a running server reports of itself and its campaigns."""
    served, now = read_state(home.state), time.time()
    if served is None:
        waits = "a server runs on this folder, and has not begun a campaign yet"
        yield Finding("server", OK, waits if held(home.lock) else "no server runs on this folder now")
        return
    problems = served.problems(now)
    if not problems:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(served.started))
        yield Finding("server", OK, f"the server has run since {since} and takes in reports")
    for sentence in problems if served.alive(now) else problems[:1]:
        yield Finding("server", FAILURE, sentence, "see the server's log")


def _certificates(config: Config) -> Iterator[Finding]:
    """Yield a finding about each certificate that the server, its broker or its devices use."""
    now = time.time()
    for path, end in certificate_ends(config).items():
        sentence = f"{path} has ended" if end <= now else f"{path} ends in {time_left(end, now)}"
        fix = cure(path) if notice(end, now) is not None else ""
        yield Finding("certificate", WARNING if fix else OK, sentence, fix)


def _ending(home: Home, config: Config) -> Iterator[Finding]:
    """Yield a warning if the campaign ends soon, from the state of the running server."""
    name, now = config.campaign.name, time.time()
    sentence = state_of(read_state(home.state), name, None, now).ending(now)
    if sentence:
        succeed = "undertone campaign succeed"
        fix = succeed if config.kind == "stream" else f"undertone campaign extend, or {succeed}"
        yield Finding(f"end of {name}", WARNING, sentence, fix)


def _files(home: Home) -> Iterator[Finding]:
    for path in (*(home.folder / name for name in (SERVER, *_SECRETS)), *home.folder.glob("readers/*.password")):
        if not path.exists():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            sentence = f"other users may open {path}: its mode is {mode:04o}"
            yield Finding("modes", FAILURE, sentence, f"chmod 600 {_quoted(path)}")
            return
    yield Finding("modes", OK, "no other user may open the server's secret files")


def _signing_key(path: Path) -> Iterator[Finding]:
    try:
        read_key(path)
        yield Finding("signing key", OK, "the server can sign campaigns")
    except (Invalid, OSError) as wrong:
        yield Finding("signing key", FAILURE, f"the server cannot sign campaigns: {wrong}", SIGNING_KEY)


def _machine(disk: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(disk).free
    sentence = f"{free >> 20} MB are free in {disk}"
    yield Finding("disk", OK, sentence) if free > _LEAST_FREE else Finding("disk", FAILURE, sentence, "free disk space")
    yield _sync(disk)
    now = time.time()
    sentence = time.strftime("it is %Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    yield (
        Finding("clock", OK, sentence)
        if now > _EARLIEST
        else Finding("clock", FAILURE, sentence, "set the clock (NTP)")
    )


def _room(home: Home, config: Config) -> Iterator[Finding]:
    """Yield a finding that says whether this server can hold the connections of all its devices.

    Yield nothing if they connect to a broker.
    """
    if config.broker.source.broker:
        return
    passwords = config.path(config.broker.passwords)
    try:
        users = read_passwords(passwords).keys() - servers_names()
    except OSError as wrong:
        sentence = f"the devices' password file {passwords} cannot be read: {wrong.strerror}"
        yield Finding(
            "passwords", FAILURE, sentence, "let the server's user read this file, or restore the file from a backup"
        )
        return
    readers = {path.stem for path in home.folder.glob("readers/*.password")}
    devices = len(users - readers)
    served = read_state(home.state)
    if served is not None and served.alive(time.time()) and served.room is not None:
        found, away = served.room, served.turned_away
    else:
        # A server raises its soft limit to the hard one when it starts.
        found, away = room(config.broker.connections, limit()[1]), 0
    sentence = (
        f"{many(devices, 'device may log in', 'devices may log in')}, and at most {found.connections} can be"
        f" connected at once, because of {found.why}"
    )
    if away:
        sentence = found.crowd(away)
    enough = devices <= found.connections and not away
    yield Finding("room", OK if enough else FAILURE, sentence, "" if enough else found.fix_for(devices))


def _sync(folder: Path) -> Finding:
    start = time.perf_counter()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as wrong:
        return Finding("sync", FAILURE, f"a test file cannot be written in {folder}: {wrong.strerror}", _WRITABLE)
    seconds = time.perf_counter() - start
    sentence = f"a write reaches the disk in {1000 * seconds:.1f} ms"
    if seconds < _SLOW_SYNC_SECONDS:
        return Finding("sync", OK, sentence)
    return Finding("sync", WARNING, sentence, "move the stores to a faster disk")


def _ports(server: ServerOptions) -> Iterator[Finding]:
    """Yield a finding for each address that the server listens on: free, used by the server, or taken."""
    for name in ("health", "page"):
        address = getattr(server, name)
        if address is None:
            continue
        place = split_address(name, address)
        try:
            with socket.create_server(place, family=family_of(place)):
                yield Finding("ports", OK, f"{name}: {address} is free; no program listens there")
        except OSError as wrong:
            path = "/healthz" if name == "health" else "/api/v1/session"
            try:
                with urllib.request.urlopen(f"http://{address}{path}", timeout=_WAIT_SECONDS):
                    answers = True
            except urllib.error.HTTPError as answer:
                # A server that hangs answers /healthz with 503. The finding of `_state` says that it hangs.
                answers = name == "health" and answer.code == HTTPStatus.SERVICE_UNAVAILABLE
            except (OSError, ValueError):
                answers = False
            if answers:
                yield Finding("ports", OK, f"{name}: {address} answers")
            else:
                fix = f"choose another address for {name} in [server]"
                yield Finding("ports", FAILURE, f"{name}: {address} cannot be used: {wrong}", fix)


def _devices_port(home: Home) -> Iterator[Finding]:
    """Yield a finding about the port to which devices connect: it is free, used by this server, or taken."""
    settings = home.broker_options
    if settings.source.broker:
        return
    port = settings.port or (PLAIN_PORT if settings.certificate is None else TLS_PORT)
    where = f"{settings.host}:{port}"
    try:
        Listener(settings.host, port).check()
    except Invalid as wrong:
        served = read_state(home.state)
        if served is not None and served.alive(time.time()) and served.reachable:
            yield Finding("ports", OK, f"devices: this server listens at {where}")
        else:
            yield Finding(
                "ports",
                FAILURE,
                f"devices: {wrong}",
                "if another program uses this port, end that program; or choose another host or port in [broker]",
            )
        return
    yield Finding("ports", OK, f"devices: {where} is free; no program listens there")


def _alerts(home: Home, server: ServerOptions, test: bool) -> Iterator[Finding]:
    """Yield a finding about the addresses of alerts. With ``test``, send a message to each and yield a finding about
    each.
    """
    if server.alerts is None:
        if test:
            yield Finding("alerts", FAILURE, "the server has no address for alerts", "set alerts in [server]")
        return
    try:
        addresses = read_addresses(home.folder / server.alerts)
    except (Invalid, OSError) as wrong:
        yield Finding("alerts", FAILURE, str(wrong), f"edit {home.folder / server.alerts}")
        return
    if not test:
        places = many(len(addresses), "address", "addresses")
        yield Finding("alerts", OK, f"alerts go to {places}; --alert-test sends a test message")
    for address in addresses if test else ():
        if address.send(TEST):
            yield Finding("alerts", OK, f"{address.name} took the test message")
        else:
            fix = f"check this line of {home.folder / server.alerts}, and the network"
            yield Finding("alerts", FAILURE, f"{address.name} did not take the test message", fix)


def _websocket(config: Config) -> Iterator[Finding]:
    """Yield a finding about the address of MQTT over WebSocket: free, used by the endpoint, or taken."""
    if config.broker.websocket is not None:
        scheme = "http" if config.broker.certificate is None else "https"
        url = f"{scheme}://{config.broker.websocket}{WEBSOCKET_PATH}"
        option = "websocket in [broker]"
        yield _listener("websocket", option, config.broker.websocket, url, HTTPStatus.UPGRADE_REQUIRED)


def _join(home: Home) -> Iterator[Finding]:
    """Yield findings about the listener at which people join: its address, its certificate, and its codes."""
    options = home.join
    if options.listen is None:
        return
    if not options.insecure:
        try:
            JoinTls(home.folder, options, home.broker_options)
        except Invalid as wrong:
            yield Finding("join", FAILURE, str(wrong), "correct certificate and key in [join] or [broker]")
            return
    url = f"{'http' if options.insecure else 'https'}://{options.listen}{DESCRIPTION_PATH}"
    yield _listener("join", "listen in [join]", options.listen, url, HTTPStatus.OK)
    states = Counter(code.state(time.time()) for code in JoinCodes(home.folder).codes())
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    yield Finding("join", OK, f"people join at {options.url}; join codes: {counted or 'none'}")


def _listener(name: str, option: str, address: str, url: str, status: int) -> Finding:
    """Return a finding about an address: free, used by this server, which answers with ``status``, or taken.

    ``option``: the option that sets the address, with its table.
    """
    place = split_address(name, address)
    try:
        with socket.create_server(place, family=family_of(place)):
            return Finding("ports", OK, f"{name}: {address} is free; no program listens there")
    except OSError as wrong:
        context = ssl.create_default_context()
        # The certificate is not verified here, because the question is only who listens there. Devices and browsers
        # verify it.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        found = 0
        try:
            with urllib.request.urlopen(url, timeout=_WAIT_SECONDS, context=context) as answer:
                found = answer.status
        except urllib.error.HTTPError as answer:
            found = answer.code
        except (OSError, ValueError):
            pass
        if found == status:
            return Finding("ports", OK, f"{name}: {address} answers")
        fix = f"choose another address for {option}"
        return Finding("ports", FAILURE, f"{name}: {address} cannot be used: {wrong}", fix)


def _store(config: Config) -> Finding:
    name = config.campaign.name
    check = f"store of {name}"
    try:
        with open_store(config.store_url, campaign=name, read_only=True) as store:
            epochs, counted = store.epoch_count(), store.outcomes()["counted"]
            store.partial(store.newest_slot() or 0)
            damage = store.damage()
        if damage:
            return Finding(
                check,
                FAILURE,
                f"the store is damaged: {damage}",
                "restore a backup of the folder with undertone restore",
            )
        return Finding(check, OK, f"{many(epochs, 'epoch')}, {many(counted, 'report')} counted")
    except NoStore:
        return Finding(check, OK, "this campaign has no store; the server makes one")
    except OtherStore as wrong:
        return Finding(check, FAILURE, str(wrong))
    except (Invalid, OSError) as wrong:
        return Finding(check, FAILURE, str(wrong), _DATABASE if store_address(config.store_url).shared else _UNREADABLE)
