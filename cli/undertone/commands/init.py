"""``undertone init`` and ``undertone doctor``: make a server's folder, and examine it."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from undertone.applies import refuse
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

_HOST = "127.0.0.1"
_MARKS = {"ok": "ok     ", "warning": "warning", "failure": "FAILURE"}


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("init")(init)
    app.command("doctor")(doctor)


def init(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="The server's folder; the command makes it if it does not exist.")],
    host: Annotated[
        str,
        typer.Option(
            help="Name or address at which devices reach this server; TLS is on unless the address is loopback."
        ),
    ] = _HOST,
    port: Annotated[
        int, typer.Option(help="Port that devices connect to; 0 means 8883 with TLS and 1883 without TLS.")
    ] = 0,
    websocket_port: Annotated[
        int | None,
        typer.Option(
            help="Port of MQTT over WebSocket, which phones need; 0 turns it off. The default is 8443 with TLS, and 0"
            " without TLS."
        ),
    ] = None,
    join_port: Annotated[
        int,
        typer.Option(
            help="Port at which people join by a link or QR code (undertone join), 8444 for example; 0: none."
        ),
    ] = 0,
    tls: Annotated[
        bool, typer.Option("--tls", help="Use TLS on loopback, too, with a private authority and a server certificate.")
    ] = False,
    certificates: Annotated[
        bool, typer.Option("--certificates", help="With TLS, give devices certificates instead of passwords.")
    ] = False,
    broker: Annotated[
        str | None,
        typer.Option(
            metavar="mqtts://HOST[:PORT]",
            help="Address of your own broker, to which devices connect and from which this server reads; the command"
            " makes the broker's files, too. mqtt:// turns TLS off and needs a loopback address.",
        ),
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Keep a row for each report, which undertone verify needs.")
    ] = False,
    health: Annotated[
        str, typer.Option(help="ADDRESS:PORT that serves /metrics, /healthz and /readyz.")
    ] = "127.0.0.1:9464",
    page: Annotated[
        str | None, typer.Option(help="ADDRESS:PORT that serves the web page; without it there is no page.")
    ] = None,
) -> None:
    """Write the configuration, keys, passwords, certificates and systemd unit of a new server."""
    from undertone_aggregator.base.owner import user_name
    from undertone_aggregator.mqtt.addresses import PLAIN_PORT, TLS_PORT, WEBSOCKET_PORT
    from undertone_aggregator.mqtt.signing import ensure_key
    from undertone_aggregator.settings.broker_options import is_loopback
    from undertone_aggregator.settings.options import split_address
    from undertone_aggregator.settings.report_sources import DIRECT, EXTERNAL
    from undertone_operate.fleet.initialise import Wishes, initialise

    mode = DIRECT
    if broker is not None:
        listening = ("host", "port", "websocket_port", "join_port", "tls", "certificates")
        refuse(context, listening, "with --broker, to which devices connect instead of this server")
        mode = EXTERNAL
        host, port, tls = _broker(broker)
    tls = tls or not is_loopback(host)
    if certificates and not tls:
        raise Invalid("--certificates needs TLS: give --tls, or --host with a name that is not loopback")
    if (folder / "server.toml").exists():
        raise Invalid(
            f"{folder / 'server.toml'} exists already, and undertone init replaces no file: name a new folder"
        )
    check_integer("--port", port, 0, 65535)
    if websocket_port is None:
        websocket_port = WEBSOCKET_PORT if tls and mode == DIRECT else 0
    check_integer("--websocket-port", websocket_port, 0, 65535)
    check_integer("--join-port", join_port, 0, 65535)
    ports = {
        "--websocket-port": websocket_port,
        "--join-port": join_port,
        "--health": split_address("--health", health)[1],
    }
    if mode == DIRECT:
        ports["--port"] = port or (TLS_PORT if tls else PLAIN_PORT)
    if page is not None:
        ports["--page"] = split_address("--page", page)[1]
    _check_different(ports)
    authority = _authority(folder, host) if tls else None
    program = (sys.executable, "-m", "undertone")
    user = user_name()
    wishes = Wishes(
        mode,
        host,
        authority,
        user,
        program,
        port=port,
        websocket_port=websocket_port,
        join_port=join_port,
        certificates=certificates,
        audit=audit,
        health=health,
        page=page,
    )
    names = initialise(folder, wishes)
    print(f"{folder}: {', '.join(names)}")
    if mode == EXTERNAL:
        conf = shlex.quote(str(folder.resolve() / "broker/mosquitto.conf"))
        print(f"start the broker on this machine: mosquitto -c {conf} -d")
        if not is_loopback(host):
            print(f"or, for a broker that runs already, copy the lines of {conf} into its configuration")
    quoted = shlex.quote(str(folder))
    key = folder / "signing.key"
    print(f"each device accepts only campaigns signed with {key}, whose public key is {ensure_key(key).public}")
    print(f"next: undertone campaign create {quoted} NAME ...")
    print(f"      undertone devices add 20 --home {quoted} --campaign NAME")
    print(f"      undertone serve {quoted}")
    print(f"      undertone doctor {quoted}")


def _check_different(ports: dict[str, int]) -> None:
    """Raise Invalid if two of these listeners have the same port. Port 0 stands for a listener that does not exist."""
    options: dict[int, str] = {}
    for option, port in ports.items():
        other = options.setdefault(port, option)
        if port and other != option:
            raise Invalid(f"{option} has port {port}, expected another: {other} has this port")


def _broker(address: str) -> tuple[str, int, bool]:
    """Return (host, port or 0, True for TLS) of a broker's address. Raises Invalid."""
    from undertone_aggregator.settings.broker_options import is_loopback

    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or 0
    except ValueError:
        host, port = None, 0
    plain = host is not None and parts.scheme == "mqtt" and is_loopback(host)
    if host is None or not (plain or parts.scheme == "mqtts") or parts.path or parts.query or parts.username:
        raise Invalid(f"--broker is {address!r}, expected mqtts://HOST or mqtts://HOST:PORT (mqtt:// only on loopback)")
    return host, port, not plain


def _authority(folder: Path, host: str) -> Path:
    """Make a private authority in tls/, and the server's certificate and key in broker/. Return the authority's
    file.
    """
    from undertone_operate.fleet.authority import private_authority

    authority = private_authority(folder / "tls", host)
    broker = folder / "broker"
    broker.mkdir(mode=0o700, exist_ok=True)
    for name in ("server.crt", "server.key"):
        (folder / "tls" / name).rename(broker / name)
    return authority


def doctor(
    folder: Annotated[Path, typer.Argument(help="The server's folder, as undertone init makes it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    alert_test: Annotated[
        bool, typer.Option("--alert-test", help="Also send a test message to each address of [server] alerts.")
    ] = False,
) -> None:
    """Examine a server's folder, its machine and its broker without disturbing a running server.

    The exit code is 1 if a check fails.
    """
    from undertone_operate.examine.doctor import examine
    from undertone_operate.examine.doctor_broker import FAILURE

    findings = []
    for finding in examine(folder, alert_test=alert_test):
        findings.append(finding)
        if not as_json:
            fix = f" (fix: {finding.fix})" if finding.fix else ""
            print(f"{_MARKS[finding.result]} {finding.check}: {finding.sentence}{fix}", flush=True)
    if as_json:
        print(json.dumps([finding.row() for finding in findings]))
    if any(finding.result == FAILURE for finding in findings):
        raise typer.Exit(1)
