"""`undertone init`: a server's folder, complete, so that doctor and serve work on it without editing."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.addresses import PLAIN_PORT, TLS_PORT
from undertone_aggregator.mqtt.broker import mosquitto_limits
from undertone_aggregator.mqtt.broker_process import CONFIG_FILE, PID_FILE
from undertone_aggregator.mqtt.signing import ensure_key
from undertone_aggregator.server.folder import BROKER, CAMPAIGNS, FLEETS, SERVER
from undertone_aggregator.settings.broker_options import DIRECT, EXTERNAL, MANAGED
from undertone_aggregator.settings.options import host_name
from undertone_aggregator.settings.sample import sample_tables
from undertone_aggregator.settings.server_options import ServerOptions
from undertone_aggregator.store.files import write_private
from undertone_shared.errors import Invalid
from undertone_shared.topics import DEFAULT_PREFIX

HEALTH = "127.0.0.1:9464"
# systemd keeps a dynamic user's state below it.
_STATE = Path("/var/lib")
_PLAIN = re.compile(r"[\w/.:@%+-]+", re.ASCII)
_UNIT = """\
[Unit]
Description=Undertone: aggregation of perturbed reports
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
CapabilityBoundingSet=
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""
_COMPOSE = """\
# The broker beside a server on the host; `undertone serve` runs outside. Not tried with a Docker daemon.
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
    """What `init` is asked for. ``port``: 0 for the usual one, and for a managed broker any that is free.

    ``mode``: of [broker]. ``host``: the broker, or this server with mode "direct", as devices reach it.
    ``authority``: the certificate of the CA of a private TLS broker or endpoint, whose own are in the folder's broker/;
    ``certificates``: with mode "direct", each device has a certificate by that authority, and no password;
    ``audit``: keep a row for each report; ``page``: ADDRESS:PORT of the page; ``program``: how this command is called,
    word by word; ``user``: whom the server runs as.
    """

    mode: str
    host: str
    authority: Path | None
    user: str
    program: tuple[str, ...]
    port: int = 0
    certificates: bool = False
    audit: bool = False
    health: str | None = HEALTH
    page: str | None = None


def initialise(folder: Path, wishes: Wishes) -> list[str]:
    """Write the files; their names. Raises Invalid for a folder that is one already, OSError."""
    if (folder / SERVER).exists():
        raise Invalid(f"{folder / SERVER} exists already: nothing in it is replaced")
    ServerOptions(health=wishes.health, page=wishes.page)
    host_name("--host", wishes.host)
    folder = folder.resolve()
    for path in (folder, *(folder / name for name in (CAMPAIGNS, BROKER, FLEETS))):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # One that is there stays: an earlier try that was cut short has made it.
    ensure_key(folder / "signing.key")
    users = {name: credentials.new_password() for name in (credentials.AGGREGATOR, credentials.ANALYST)}
    for name, password in users.items():
        write_private(folder / f"{name}.password", password + "\n")
    workers = credentials.server_users(users[credentials.AGGREGATOR])
    analysts = credentials.analyst_users(users[credentials.ANALYST])
    credentials.write_passwords(folder / BROKER / "passwords", {**analysts, **users, **workers})
    credentials.write_access_rules(folder / BROKER / "access", DEFAULT_PREFIX)
    usual = PLAIN_PORT if wishes.authority is None else TLS_PORT
    port = wishes.port if wishes.mode == MANAGED else wishes.port or usual
    if wishes.mode == EXTERNAL:
        _write_broker(folder / BROKER, port, wishes)
    options = _options(port, wishes)
    write_private(folder / SERVER, _chosen(sample_tables("broker", "store", "server"), options))
    write_private(folder / "undertone.service", _unit(folder, wishes))
    return sorted(path.name for path in folder.iterdir())


def _options(port: int, wishes: Wishes) -> dict[str, str]:
    options = {"path": '"stores"', "port": str(port), "mode": f'"{wishes.mode}"'}
    if wishes.mode == DIRECT:
        options |= {"passwords": '"broker/passwords"', "access": '"broker/access"'}
        if wishes.authority is not None:
            # Every address of this machine; what is told to devices is the name in the certificate.
            options |= {"host": '"0.0.0.0"', "reached_as": json.dumps(wishes.host)}
            options |= {"certificate": '"broker/server.crt"', "key": '"broker/server.key"'}
        if wishes.certificates:
            options["ca_file"] = '"tls/ca.crt"'
    elif wishes.mode == MANAGED:
        options |= {"passwords": '"broker/passwords"', "mosquitto_acl": '"broker/access"'}
        options["password_file"] = '"aggregator.password"'
    else:
        options |= {"host": json.dumps(wishes.host), "password_file": '"aggregator.password"'}
        if wishes.authority is not None:
            options["ca_file"] = '"tls/ca.crt"'
    if wishes.audit:
        options["audit"] = "true"
    return options | {name: json.dumps(where) for name in ("health", "page") if (where := getattr(wishes, name))}


def _chosen(text: str, options: Mapping[str, str]) -> str:
    """The sample with these options set; each stands there, perhaps commented out."""
    lines = []
    for line in text.splitlines():
        name = line.removeprefix("# ").partition(" = ")[0]
        lines.append(f"{name} = {options[name]}" if " = " in line and name in options else line)
    return "\n".join(lines) + "\n"


def _write_broker(folder: Path, port: int, wishes: Wishes) -> None:
    """For mosquitto 2, on this machine or, with the same paths, in a container."""
    lines = ["# For mosquitto 2: mosquitto -c this file. It reads passwords and access again at SIGHUP."]
    lines.append(f"listener {port}")
    if wishes.authority is not None:
        lines += [f"certfile {folder}/server.crt", f"keyfile {folder}/server.key"]
    # Who starts it as root has it run as the owner of these files.
    lines += [f"user {wishes.user}", f"pid_file {folder / PID_FILE}"]
    lines += [f"password_file {folder}/passwords", f"acl_file {folder}/access"]
    lines += ["persistence true", f"persistence_location {folder}/", "autosave_interval 2", *mosquitto_limits()]
    lines += [f"log_dest file {folder}/mosquitto.log", "log_type error", "log_type warning", "log_type notice"]
    write_private(folder / CONFIG_FILE, "\n".join([*lines, "connection_messages false", ""]))
    compose = _COMPOSE.format(broker=folder, port=port, uid=os.geteuid(), gid=os.getegid())
    write_private(folder.parent / "compose.yaml", compose)


def _unit(folder: Path, wishes: Wishes) -> str:
    """With a user made for it where systemd can give that user the folder, else as who owns the folder."""
    who = f"User={wishes.user}\nReadWritePaths={_word(str(folder))}"
    if folder.parent == _STATE:
        who = f"DynamicUser=yes\nStateDirectory={_word(folder.name)}\nStateDirectoryMode=0700"
    # In a command $ begins a variable; a credential's path is the rest of its line.
    command = " ".join(_word(word).replace("$", "$$") for word in (*wishes.program, "serve", str(folder)))
    return _UNIT.format(who=who, command=command, secrets=str(folder).replace("%", "%%"))


def _word(text: str) -> str:
    """One word of a unit, whatever it holds; % begins a specifier there."""
    plain = text.replace("%", "%%")
    return plain if _PLAIN.fullmatch(plain) else '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
