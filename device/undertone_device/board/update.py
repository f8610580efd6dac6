"""Update of a board's code at its owner's request: fetch new code, check it, try it, and keep it only if it reports.

    from undertone_device.board import update
    update.fetch("http://host/undertone-0.3.0", "sha256 of its package.json, as the release printed it")

The new code goes into the one of two folders that is not in use. Every file's sha256 must match package.json, and
package.json's sha256 the given one. Then one file, `code`, names the folder and the number of boots that may try it.
The new code becomes the good one only when the broker has acknowledged a report from it (`keep`); otherwise the board
goes back to the old code. The module is loaded on demand.
"""

import binascii
import hashlib
import json
import os

from undertone_device.setup.storage import FileStorage
from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STATE = "code"
FOLDERS = ("lib", "lib2")
BOOTS = 3
_PART = 512


def state(storage: "FileStorage") -> "tuple[str, str, int]":
    """Return (good folder, folder to run, boots that may still try it), as `main.py` reads them.

    A newly flashed board uses the folder lib.
    """
    try:
        good, now, boots = (storage.read(STATE) or b"").decode().split()
        return good, now, int(boots)
    except ValueError:
        return FOLDERS[0], FOLDERS[0], 0


def fetch(url: str, digest: str, root: str = "") -> str:
    """Stage the release at ``url``, to be tried from the next boot on; return its folder. Raises Invalid, OSError.

    ``digest``: the sha256 of its package.json in hexadecimal. After any interruption the running code stays in use.
    """
    storage = FileStorage(root or ".")
    good, now, _ = state(storage)
    if good != now:
        raise Invalid("the code in %s is on trial: wait until it has reported" % now)
    folder = FOLDERS[1 - FOLDERS.index(good)]
    files = _manifest(url + "/package.json", digest)
    path = root + "/" + folder if root else folder
    _clear(path)
    _install(url, path, files)
    for name in files:
        if _sha256(path + "/" + name) != files[name]:
            raise Invalid("%s is missing, or its sha256 is not %s" % (name, files[name]))
    storage.write(STATE, ("%s %s %d" % (good, folder, BOOTS)).encode())
    return folder


def keep(root: str = "") -> None:
    """Mark the code on trial as the good one, because it has reported. Raises OSError."""
    storage = FileStorage(root or ".")
    good, now, _ = state(storage)
    if good != now:
        storage.write(STATE, ("%s %s 0" % (now, now)).encode())


def _manifest(url: str, digest: str) -> "dict[str, str]":
    import mip

    # mip.requests is the HTTP client that mip itself uses for its downloads.
    answer: Any = mip.requests.get(url)
    try:
        data = answer.content
    finally:
        answer.close()
    if answer.status_code != 200 or _hex(hashlib.sha256(data)) != digest:
        raise Invalid("%s cannot be fetched, or has another sha256 than %s" % (url, digest))
    files: dict[str, str] = json.loads(data)["sha256"]
    return files


def _install(url: str, path: str, names: "dict[str, str]") -> None:
    """Install exactly the files of the checked manifest: mip would download the list again, and trust that answer."""
    import mip

    folder = ""
    for name in names:
        target = path + "/" + name
        if target[: target.rindex("/")] != folder:
            folder = target[: target.rindex("/")]
            _make_folders(folder)
        answer: Any = mip.requests.get(url + "/" + name)
        try:
            with open(target, "wb") as file:
                data = answer.raw.read(_PART)
                while data:
                    file.write(data)
                    data = answer.raw.read(_PART)
        finally:
            answer.close()


def _make_folders(path: str) -> None:
    parts = path.split("/")
    for i in range(len(parts)):
        try:
            os.mkdir("/".join(parts[: i + 1]))
        except OSError:  # Usually the folder exists already. If it does not, opening the file will fail.
            pass


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while True:
                data = file.read(_PART)
                if not data:
                    return _hex(digest)
                digest.update(data)
    except OSError:
        return "none"


def _hex(digest: "Any") -> str:
    return binascii.hexlify(digest.digest()).decode()


def _clear(path: str) -> None:
    """Remove a folder and its content."""
    try:
        entries = os.listdir(path)
    except OSError:
        return
    for name in entries:
        inner = path + "/" + name
        try:
            os.remove(inner)
        except OSError:
            _clear(inner)
    os.rmdir(path)
