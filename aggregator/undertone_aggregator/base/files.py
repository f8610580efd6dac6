"""Files that are replaced in one step, so that neither a reader nor a crash ever finds half a file; and secrets in
files.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file's name into an OSError of a read or a write. The system itself names a file only if opening it
    fails.
    """
    try:
        yield
    except OSError as wrong:
        if wrong.filename is None:
            wrong.filename = str(path)
        raise


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_private(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace the file in one step; only its owner may read it (mode 0600).

    ``durable``: on return the file is on the disk under its name. A path within the text may hold bytes that the locale
    could not decode (PEP 383); they are written unchanged. Raises OSError.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with naming(path), os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        give_to_owner(Path(temporary), path if path.exists() else path.parent)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    if durable:
        sync(path.parent)


def read_utf8(path: Path) -> str:
    """Return the text of a file. Raises Invalid, which names the file, if the text is not UTF-8, and OSError."""
    data = path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        raise Invalid(f"{path} is not UTF-8 text: its byte {wrong.start} is {data[wrong.start]:#04x}") from None


def read_secret(path: Path, *, private: bool = False, least: int = 1) -> str:
    """Return the secret, a password or a token, that a file of one line holds.

    Raises Invalid if the file is empty, or has more than one line or fewer than ``least`` characters. If ``private``,
    also raises Invalid if users other than the file's owner have any right to the file. Raises OSError for a missing
    file.
    """
    if private:
        check_private(path)
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not text or "\n" in text:
        raise Invalid(f"{path} holds {len(text.splitlines())} lines, expected one line: the secret")
    if len(text) < least:
        raise Invalid(f"the secret in {path} has {many(len(text), 'character')}, expected at least {least}")
    return text


def check_private(path: Path) -> None:
    """Raise Invalid if anybody but the owner may read, write or run the file. Raise OSError if it does not exist."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Invalid(f"{path} has mode {mode:04o}, expected 0600, so that only its owner can read it")
