"""Backup of a server's whole folder into one file, and restoring the folder from it on a new machine.

The file is a tar archive. Its first member, `manifest.json`, lists every other member with its size, mode and SHA-256.
SQLite copies its stores while the server runs; each copy is consistent in itself. Neither the archive nor the folder
ever exists half-written under its final name: both are made under another name and synced before they get it.
"""

import hashlib
import io
import json
import os
import secrets
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO

from undertone_aggregator.base.files import sync
from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.restored import SettledMark
from undertone_aggregator.estimate.publication import withhold
from undertone_aggregator.server.folder import STATE, Home
from undertone_aggregator.settings.landing_plan import SPARK
from undertone_aggregator.store.store import open_store
from undertone_aggregator.store.store_address import store_address
from undertone_operate.backup.sealed import seal, unseal
from undertone_operate.fleet.join_codes import FILE as JOIN_CODES
from undertone_operate.fleet.join_codes import OPEN, JoinCodes
from undertone_shared.errors import Invalid

MANIFEST = "manifest.json"
_FORMAT = "undertone-home-1"
_LARGEST_MANIFEST = 1 << 26
# Patterns of the files that a backup leaves out, because a new machine does not need them: a starting server makes them
# again, or they belong to this machine only.
_LEFT_OUT = (
    "*.lock",
    "*.server",
    "*-wal",
    "*-shm",
    "*.pid",
    "mosquitto.db*",
    "*-journal",
    "*.before-*",
    # With its key, a copy of a store would show the newest reports of each device.
    "*.sqlite.key",
    # From this file, a server sees that a restored database is an older one. So a restore must not replace the file.
    "*.settled",
    ".*",
)
# Files that contain the path of the server's folder, which a restore on another machine changes.
_WITH_PATHS = ("broker/mosquitto.conf", "compose.yaml", "undertone.service")
# Pattern of a file name -> description of the secret in it.
_SECRETS = {
    "signing.key": "the key that signs campaigns: whoever has the key can issue campaigns to all devices",
    "*ca.key": "the private authority's key: whoever has the key can make certificates that devices trust",
    "*.key": "a private key for a certificate or for signatures",
    "*.password": "a password of the server or of a reader, in plain text",
    "*passwords": "the hashed passwords of devices, readers and the server",
    "*token*": "the token of the web page",
    "*.urls": "the addresses to which alerts go, which may contain passwords",
    "fleets/*": "the devices' files, with their passwords or keys",
    JOIN_CODES: "the names of devices that joined by a code; of each code, only the hash",
    "*.sqlite": "the names of devices and when each reported; with audit = true, also a digest of each report; never a"
    " reading",
}


@dataclass(frozen=True)
class Backed:
    """Contents of a backup. ``secrets``: (file or folder, description); ``notes``: what the backup does not contain."""

    files: int
    secrets: list[tuple[str, str]]
    notes: list[str]


def back_up_home(folder: Path, file: Path, passphrase: str | None = None) -> Backed:
    """Write everything that a new machine needs of a server's folder to a new file of mode 0600, while the server runs.

    ``passphrase``: encrypts the file, see `undertone_operate.backup.sealed`; None: no encryption. Raises Invalid if the
    folder is not a server's, and if the file exists. Raises StoreError, OSError.
    """
    home = Home(folder)
    if file.exists():
        raise Invalid(f"{file} exists already, and a backup replaces no file: name a new file")
    if file.resolve().is_relative_to(folder.resolve()):
        raise Invalid(f"{file} is inside {folder}, expected a file elsewhere, so that both are not lost together")
    stores = {Path(store_address(url).where).resolve() for url in home.stores().values() if not _is_shared(url)}
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as name:
        scratch = Path(name)
        members: list[tuple[str, Path, int]] = []
        for path in _files(folder, _landing_folders(home)):
            inside, source = str(path.relative_to(folder)), path
            if path.resolve() in stores:
                source = scratch / f"{len(members)}.sqlite"
                with open_store(path, read_only=True) as store:
                    store.backup(source)
            elif inside == JOIN_CODES:
                source = scratch / f"{len(members)}.sqlite"
                JoinCodes(folder).copy(source)
            members.append((inside, source, path.stat().st_mode & 0o777))
        whole = scratch / "whole"
        with _new(whole) as out:
            _write(out, members, str(folder.resolve()))
            out.flush()
            os.fsync(out.fileno())
        if passphrase is not None:
            plain, whole = whole, scratch / "sealed"
            with plain.open("rb") as archive, _new(whole) as out:
                seal(archive, out, passphrase)
                out.flush()
                os.fsync(out.fileno())
        # A hard link, unlike a rename, never replaces a file that exists already.
        os.link(whole, file)
        sync(file.parent)
    return Backed(len(members), _secrets(inside for inside, _, _ in members), _notes(home))


def restore_sealed_home(file: Path, folder: Path, passphrase: str) -> list[str]:
    """Make a server's folder from an encrypted backup, like `restore_home`. Raises Invalid for another passphrase."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as name:
        plain = Path(name) / "plain"
        with file.open("rb") as source, _new(plain) as out:
            unseal(source, out, passphrase)
        return restore_home(plain, folder, file)


def restore_home(file: Path, folder: Path, original: Path | None = None) -> list[str]:
    """Make a server's folder from a backup, completely or not at all; return notes for the operator.

    ``original``: the encrypted file from which ``file`` was made, for error messages; None if there is none. Raises
    Invalid for a folder that is not empty and for a file that is not a complete backup. Raises OSError.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        found = "not empty" if folder.is_dir() else "a file"
        raise Invalid(f"{folder} is {found}, expected an empty or new folder, because a restore replaces no file")
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.parent / f".{folder.name}.{secrets.token_hex(8)}"
    scratch.mkdir(mode=0o700)
    like = folder if folder.exists() else folder.parent
    try:
        with tarfile.open(file, "r:") as archive:
            before = _extract(archive, scratch, original or file)
        for name in _WITH_PATHS:
            _relocate(scratch / name, before, str(folder.resolve()))
        sentences = [f"{folder}: {many(_count(scratch), 'file')} restored"]
        sentences += _check_stores(Home(scratch))
        sentences += _withhold(Home(scratch), int(time.time()))
        for path in (scratch, *scratch.rglob("*")):
            give_to_owner(path, like)
            if path.is_dir():
                sync(path)
        # The rename succeeds if the target is missing or an empty folder, and fails for any other target.
        scratch.rename(folder)
        sync(folder.parent)
    except tarfile.TarError as wrong:
        raise Invalid(f"{original or file} is not a complete backup of a server's folder: {wrong}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sentences += _notes(Home(folder))
    sentences.append(
        "reports that were acknowledged after the backup was made are not in the restored stores; the devices' sequence"
        " numbers will show that these reports are lost"
    )
    if by_spark := [name for name in Home(folder).names() if Home(folder).config(name).landing.counts == SPARK]:
        sentences.append(
            f"Spark counts the landed reports of {', '.join(by_spark)}: run undertone spark recount with a new"
            " checkpoint, which counts the landed files that still exist"
        )
    sentences.append(
        "devices connect to the name or address in [broker] of server.toml: make it lead to this machine, or to your"
        " broker; then start the server"
    )
    if any(code.state(time.time()) == OPEN for code in JoinCodes(folder).codes()):
        sentences.append(
            "join codes that people redeemed after the backup was made are open again: revoke all open codes with"
            " undertone join revoke --all"
        )
    return sentences


def _new(path: Path) -> BinaryIO:
    """Create a file of mode 0600, open for writing. Raises OSError if it exists."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _is_shared(url: str) -> bool:
    return store_address(url).shared


def _files(folder: Path, without: set[Path]) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if any(fnmatch(part, pattern) for part in parts for pattern in _LEFT_OUT):
            continue
        if path.is_file() and path != folder / STATE and without.isdisjoint(path.resolve().parents):
            yield path


def _landing_folders(home: Home) -> set[Path]:
    plans = [home.config(name).landing.plan(home.folder) for name in home.names()]
    return {Path(plan.folder).resolve() for plan in plans if plan is not None}


def _write(out: BinaryIO, members: list[tuple[str, Path, int]], folder: str) -> None:
    """Write the archive. Every file except the stores is read only once, so that the manifest and the content agree.

    The stores are copies, which nobody changes.
    """
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        contents = {}
        listed = []
        for name, source, mode in members:
            if source.suffix != ".sqlite":
                contents[name] = source.read_bytes()
            size = len(contents[name]) if name in contents else source.stat().st_size
            digest = hashlib.sha256(contents[name]).hexdigest() if name in contents else _digest(source)
            listed.append({"name": name, "size": size, "mode": mode, "sha256": digest})
        manifest = json.dumps({"format": _FORMAT, "folder": folder, "files": listed}, indent=1).encode()
        _add(archive, MANIFEST, len(manifest), io.BytesIO(manifest))
        for entry, (name, source, _) in zip(listed, members, strict=True):
            with io.BytesIO(contents[name]) if name in contents else source.open("rb") as data:
                _add(archive, f"home/{name}", entry["size"], data)


def _add(archive: tarfile.TarFile, name: str, size: Any, data: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    archive.addfile(member, data)


def _extract(archive: tarfile.TarFile, folder: Path, file: Path) -> str:
    """Extract only the files of the manifest; return the old path of the folder. ``file``: as errors name the backup.

    Raises Invalid for an incomplete backup.
    """
    first = archive.next()
    data = archive.extractfile(first) if first is not None and first.name == MANIFEST else None
    if data is None or first is None or first.size > _LARGEST_MANIFEST:
        raise Invalid(f"{file} is not a backup of a server's folder: it begins with no valid {MANIFEST}")
    try:
        manifest = json.loads(data.read())
        if manifest["format"] != _FORMAT:
            raise Invalid(f"the backup's format is {manifest['format']!r}, expected {_FORMAT!r}")
        wanted = {str(entry["name"]): entry for entry in manifest["files"]}
        before = str(manifest["folder"])
        while (member := archive.next()) is not None:
            name = member.name.removeprefix("home/")
            entry = wanted.pop(name, None)
            path = folder / name
            if entry is None or not member.isfile() or not _is_plain(name):
                raise Invalid(
                    f"the backup contains {member.name!r}, expected only the files that its {MANIFEST} names, each one"
                    " once"
                )
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = archive.extractfile(member)
            assert content is not None
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as out:
                shutil.copyfileobj(content, out)
                out.flush()
                os.fsync(out.fileno())
            if _digest(path) != entry["sha256"]:
                raise Invalid(f"{name} in the backup is damaged: its content has changed since the backup")
            path.chmod(_mode(name, int(entry["mode"])))
    except Invalid:
        raise
    except (FileExistsError, NotADirectoryError):
        raise Invalid(f"the backup contains {name!r} both as a file and as a folder, or twice") from None
    except (ValueError, KeyError, TypeError):
        raise Invalid(f"the backup's {MANIFEST} is not valid, expected the one that undertone backup wrote") from None
    if wanted:
        others = f" and {many(len(wanted) - 1, 'other file')}" if len(wanted) > 1 else ""
        raise Invalid(f"the backup is incomplete: it lacks {min(wanted)}{others}")
    return before


def _is_plain(name: str) -> bool:
    """Return True for the path of a file within a folder, without empty parts, ``.`` and ``..``."""
    return not {"", ".", ".."}.intersection(name.split("/")) and "\0" not in name


def _mode(name: str, mode: int) -> int:
    """Return the mode that a restored file gets. Only its owner may write to it; if it is secret, only its owner may
    read it.
    """
    secret = any(fnmatch(name, pattern) for pattern in _SECRETS)
    return mode & (0o700 if secret else 0o755)


def _relocate(path: Path, before: str, now: str) -> None:
    """Replace the folder's old path by its new one in a file."""
    if before != now and path.is_file():
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(before, now), encoding="utf-8")


def _check_stores(home: Home) -> list[str]:
    """Return a sentence about the content of each store. Raises Invalid for a damaged store."""
    sentences = []
    for name, url in sorted(home.stores().items()):
        if _is_shared(url):
            continue
        with open_store(url, read_only=True) as store:
            damage = store.damage()
            if damage:
                raise Invalid(f"the store of {name} in the backup is damaged: {damage}")
            newest, counted = store.newest_slot(), store.outcomes()["counted"]
            of = f", the newest from slot {newest}" if counted else ""
            sentences.append(f"{name}: {many(store.epoch_count(), 'epoch')}, {many(counted, 'report')}{of}")
    return sentences


def _withhold(home: Home, now: int) -> list[str]:
    """Keep stores from publishing slots that the lost server may have published; return a sentence for each store."""
    sentences = []
    for name in home.names():
        config = home.config(name)
        plan = config.campaign
        newest = now // plan.slot_seconds - plan.settle_slots - 1
        if _is_shared(config.store_url):
            # The server compares this note with what the database has settled.
            SettledMark(home.folder, name).note(newest)
            sentences.append(
                f"{name}: if you have also restored its database, no number is published for the time from the"
                " database's last settled slot to now"
            )
            continue
        if not Path(store_address(config.store_url).where).exists():
            continue
        with open_store(config.store_url, campaign=name) as store:
            if not store.epoch_count():
                continue
            span = withhold(store, newest, plan.min_reports)
        if span is not None:
            first, last = (
                time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(slot * plan.slot_seconds))
                for slot in (span[0], span[1] + 1)
            )
            sentences.append(
                f"{name}: no number is published for the time from {first if span[0] else 'the beginning'} to {last}:"
                " the lost server may have published numbers of these slots, and no slot gets a second, different"
                " number"
            )
    return sentences


def _notes(home: Home) -> list[str]:
    """Return notes about what a new machine needs and the backup does not contain."""
    sentences = [
        f"the counts of {name} are in a database, which the backup does not contain: use pg_dump and pg_restore"
        for name, url in sorted(home.stores().items())
        if _is_shared(url)
    ]
    configs = {name: home.config(name) for name in home.names()}
    sentences += [
        f"the backup does not contain the landed files in {folder}"
        for folder in sorted(map(str, _landing_folders(home)))
    ]
    outside = {
        str(config.path(path))
        for config in configs.values()
        for path in (
            *(config.broker.password_file, config.broker.ca_file, config.broker.certificate, config.broker.key),
            *(config.broker.passwords, config.server.signing_key, config.server.page_token, config.campaign.groups),
            *(config.server.alerts, config.join.certificate, config.join.key),
            *(config.outlet.password_file, config.outlet.ca_file),
            *([] if config.store_address.file is None else [str(config.store_address.file)]),
        )
        if path is not None and not config.path(path).resolve().is_relative_to(home.folder.resolve())
    }
    return sentences + [
        f"{path} is outside the folder, so the backup does not contain it: copy it yourself" for path in sorted(outside)
    ]


def _secrets(names: Iterator[str]) -> list[tuple[str, str]]:
    """List the secrets in the backup; the devices of one fleet are one entry."""
    found: dict[str, str] = {}
    for name in names:
        for pattern, what in _SECRETS.items():
            if fnmatch(name, pattern) or (name.startswith("fleets/") and pattern == "fleets/*"):
                place = "/".join(name.split("/")[:2]) if name.startswith("fleets/") else name
                found.setdefault(place, _SECRETS["fleets/*"] if name.startswith("fleets/") else what)
                break
    return sorted(found.items())


def _count(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
