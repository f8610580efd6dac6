"""`undertone init`: write a complete server folder, so that doctor and serve work on it without editing."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertone_aggregator.base.files import write_private
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.addresses import PLAIN_PORT, TLS_PORT
from undertone_aggregator.mqtt.mosquitto import CONFIG_FILE, PID_FILE, mosquitto_limits
from undertone_aggregator.mqtt.signing import ensure_key
from undertone_aggregator.server.folder import BROKER, CAMPAIGNS, FLEETS, SERVER
from undertone_aggregator.settings.options import host_name
from undertone_aggregator.settings.report_sources import DIRECT, EXTERNAL
from undertone_aggregator.settings.sample import sample_tables
from undertone_aggregator.settings.server_options import ServerOptions
from undertone_aggregator.settings.toml import toml
from undertone_shared.errors import Invalid
from undertone_shared.topics import DEFAULT_PREFIX

HEALTH = "127.0.0.1:9464"
# Folder under which systemd stores the state of a dynamic user.
_STATE = Path("/var/lib")
_PLAIN = re.compile(r"[\w/.:@%+-]+", re.ASCII)
_UNIT = """\
[Unit]
Description=Undertone: means of noisy reports
Documentation=https://mosquitto.org/man/mosquitto-conf-5.html
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
NotifyAccess=main
WatchdogSec=60
ExecStart={command}
KillMode=mixed
Restart=on-failure
RestartSec=5
LimitNOFILE=1048576
{who}
LoadCredential=signing.key:{secrets}/signing.key
LoadCredential=aggregator.password:{secrets}/aggregator.password
UMask=0077
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
NoNewPrivileges=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
LockPersonality=yes
CapabilityBoundingSet={capability}
AmbientCapabilities={capability}
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""
_COMPOSE = """\
# This file starts only the broker; `undertone serve` runs on the host. Nobody has tried this file with Docker yet.
services:
  mosquitto:
    image: eclipse-mosquitto:2
    command: ["mosquitto", "-c", "{broker}/mosquitto.conf"]
    user: "{uid}:{gid}"
    restart: unless-stopped
    read_only: true
    ports: ["{port}:{port}"]
    volumes:
      - "{broker}:{broker}"
"""


@dataclass(frozen=True)
class Wishes:
    """The options of `undertone init`.

    ``port``: 0 for the default port. ``websocket_port``: port of MQTT over WebSocket, 0 without it. ``mode``: that of
    [broker]. ``host``: name of the broker, or of this server with mode "direct", as devices reach it. ``authority``: a
    CA's certificate, for private TLS; the broker's or endpoint's own certificate is in the folder's broker/.
    ``certificates``: with mode "direct", each device has a certificate by that authority instead of a password.
    ``audit``: store a row for each report. ``page``: ADDRESS:PORT of the page. ``join_port``: port at which people
    join, 0 for none. ``program``: the command line of this program, word by word. ``user``: the user as whom the server
    runs. ``more``: further options of `server.toml` by name, such as ``workers``.
    """

    mode: str
    host: str
    authority: Path | None
    user: str
    program: tuple[str, ...]
    port: int = 0
    websocket_port: int = 0
    join_port: int = 0
    certificates: bool = False
    audit: bool = False
    health: str | None = HEALTH
    page: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


def initialise(folder: Path, wishes: Wishes) -> list[str]:
    """Write the files; return the names of what is then in the folder. Raises Invalid for an existing server folder,
    OSError.
    """
    if (folder / SERVER).exists():
        raise Invalid(f"{folder / SERVER} exists already, and undertone init replaces no file: name a new folder")
    ServerOptions(health=wishes.health, page=wishes.page)
    host_name("--host", wishes.host)
    folder = folder.resolve()
    for path in (folder, *(folder / name for name in (CAMPAIGNS, BROKER, FLEETS))):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # If an earlier run was interrupted after it had made a signing key, that key is used.
    ensure_key(folder / "signing.key")
    password = credentials.new_password()
    write_private(folder / f"{credentials.AGGREGATOR}.password", password + "\n")
    credentials.write_passwords(folder / BROKER / "passwords", credentials.server_users(password))
    credentials.write_access_rules(folder / BROKER / "access", DEFAULT_PREFIX)
    usual = PLAIN_PORT if wishes.authority is None else TLS_PORT
    port = wishes.port or usual
    if wishes.mode == EXTERNAL:
        _write_broker(folder / BROKER, port, wishes)
    options = _options(port, wishes)
    tables = [_chosen(sample_tables("broker", "store", "server"), options)]
    tables.append(_chosen(sample_tables("join"), _join_options(wishes)))
    write_private(folder / SERVER, "\n".join(tables))
    write_private(folder / "undertone.service", _unit(folder, wishes))
    return sorted(path.name for path in folder.iterdir())


def _options(port: int, wishes: Wishes) -> dict[str, Any]:
    options: dict[str, Any] = {"path": "stores", "port": port, "mode": wishes.mode}
    if wishes.mode == DIRECT:
        options |= {"passwords": "broker/passwords", "access": "broker/access"}
        if wishes.authority is not None:
            # The endpoint listens on every IPv4 address of this machine; devices use the name in the certificate.
            options |= {"host": "0.0.0.0", "reached_as": wishes.host}
            options |= {"certificate": "broker/server.crt", "key": "broker/server.key"}
        if wishes.websocket_port:
            every = "127.0.0.1" if wishes.authority is None else "0.0.0.0"
            options["websocket"] = f"{every}:{wishes.websocket_port}"
        if wishes.certificates:
            options["ca_file"] = "tls/ca.crt"
    else:
        options |= {"host": wishes.host, "password_file": "aggregator.password"}
        if wishes.authority is not None:
            options["ca_file"] = "tls/ca.crt"
    if wishes.audit:
        options["audit"] = True
    options |= {name: where for name in ("health", "page") if (where := getattr(wishes, name))}
    return {**options, **wishes.more}


def _join_options(wishes: Wishes) -> dict[str, Any]:
    if not wishes.join_port:
        return {}
    secure = wishes.authority is not None
    host = f"[{wishes.host}]" if ":" in wishes.host else wishes.host
    return {
        "listen": f"{'0.0.0.0' if secure else '127.0.0.1'}:{wishes.join_port}",
        "url": f"http{'s' if secure else ''}://{host}:{wishes.join_port}",
        "insecure": not secure,
    }


def _chosen(text: str, options: Mapping[str, Any]) -> str:
    """Return the sample configuration ``text`` with these options set, including options that the sample has in
    comments.
    """
    lines = []
    for line in text.splitlines():
        name = line.removeprefix("# ").partition(" = ")[0]
        lines.append(f"{name} = {toml(options[name])}" if " = " in line and name in options else line)
    return "\n".join(lines) + "\n"


def _write_broker(folder: Path, port: int, wishes: Wishes) -> None:
    """Write mosquitto 2's configuration, for this machine or, with the same paths, for a container."""
    lines = ["# For mosquitto 2: mosquitto -c this file. At SIGHUP, mosquitto reads passwords and access again."]
    lines.append(f"listener {port}")
    if wishes.authority is not None:
        lines += [f"certfile {folder}/server.crt", f"keyfile {folder}/server.key"]
    # If root starts mosquitto, mosquitto runs as this user, who owns the files in the folder.
    lines += [f"user {wishes.user}", f"pid_file {folder / PID_FILE}"]
    lines += [f"password_file {folder}/passwords", f"acl_file {folder}/access"]
    lines += ["persistence true", f"persistence_location {folder}/", "autosave_interval 2", *mosquitto_limits()]
    lines += [f"log_dest file {folder}/mosquitto.log", "log_type error", "log_type warning", "log_type notice"]
    write_private(folder / CONFIG_FILE, "\n".join([*lines, "connection_messages false", ""]))
    compose = _COMPOSE.format(broker=folder, port=port, uid=os.geteuid(), gid=os.getegid())
    write_private(folder.parent / "compose.yaml", compose)


def _unit(folder: Path, wishes: Wishes) -> str:
    """Return the systemd unit. It uses a dynamic user if systemd can give that user the folder, else the user that was
    wished for.
    """
    who = f"User={wishes.user}\nReadWritePaths={_word(str(folder))}"
    if folder.parent == _STATE:
        who = f"DynamicUser=yes\nStateDirectory={_word(folder.name)}\nStateDirectoryMode=0700"
    # In the command of a systemd unit, $ begins a variable. The path of a credential needs no quotes, because it
    # extends to the end of its line.
    command = " ".join(_word(word).replace("$", "$$") for word in (*wishes.program, "serve", str(folder)))
    # Without this capability, only root may listen on ports below 1024.
    low = any(0 < port < 1024 for port in (wishes.port, wishes.websocket_port))
    capability = "CAP_NET_BIND_SERVICE" if low else ""
    return _UNIT.format(who=who, command=command, capability=capability, secrets=str(folder).replace("%", "%%"))


def _word(text: str) -> str:
    """Quote one word for a systemd unit. In a unit, % begins a specifier."""
    plain = text.replace("%", "%%")
    return plain if _PLAIN.fullmatch(plain) else '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
