"""The phone's web app as the files that a server gives a browser: the page, MicroPython, and the device package.

The sources are in ``device/phone``; ``scripts/vendor.py`` fetches MicroPython's WebAssembly build into
``device/phone/vendor``. The device package is that of boards, without what only boards need, in one file ``code.json``:
an object from each module's path to its source.
"""

import hashlib
import json
from pathlib import Path
from urllib.parse import urlsplit

import undertone_device
from undertone_device.host.words import DEFAULT, languages, read_words
from undertone_device.tools.compile import board_files
from undertone_device.tools.shipped import shipped
from undertone_shared.errors import Invalid

# Modules for a person's status and pauses, in addition to those of every board.
_FURTHER = tuple("core/pauses.py core/spent.py host/__init__.py host/consent.py host/others.py host/status.py".split())
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
}
_CODE = "code.json"
_BROKER = "broker.json"
_LANGUAGES = "words/languages.json"
_WORKER = "service-worker.js"


def phone_files(websocket: str) -> dict[str, bytes]:
    """Return the content of each file by its path below the page's address; the page itself is ``index.html``.

    ``websocket``: the address of MQTT over WebSocket. The address is in one of the files, too: when it changes, phones
    fetch all files again, and with them the policy of `security_policy` that allows the new address.

    Raises Invalid if MicroPython has not been fetched.
    """
    folder = shipped("phone/index.html").parent
    paths = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.suffix in _TYPES]
    files = {path.as_posix(): (folder / path).read_bytes() for path in paths if path.parts[0] != "npm"}
    if "vendor/micropython.wasm" not in files:
        raise Invalid(
            f"{folder / 'vendor'} lacks micropython.wasm: run python scripts/vendor.py in the checkout (it needs npm)"
        )
    files[_CODE] = _code(folder).encode()
    for language in languages():
        files[f"words/{language}.json"] = json.dumps(read_words(language), ensure_ascii=False).encode()
    files[_LANGUAGES] = json.dumps({"default": DEFAULT, "languages": languages()}).encode()
    files[_BROKER] = json.dumps({"websocket": websocket}).encode()
    # The service worker's text contains a digest of all other files: so a browser notices when one of them changes.
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    names = json.dumps(["./"] + [name for name in sorted(files) if name not in ("index.html", _WORKER)])
    text = files[_WORKER].decode().replace("VERSION", digest.hexdigest()[:16]).replace('["FILES"]', names)
    return files | {_WORKER: text.encode()}


def media_type(path: str) -> str:
    """Return the media type of a file of the app."""
    return _TYPES[Path(path).suffix]


def security_policy(websocket: str) -> str:
    """Return the Content-Security-Policy of every answer, which allows this host and that of ``websocket`` only."""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(websocket))
    return (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self';"
        f" manifest-src 'self'; worker-src 'self'; connect-src 'self' {origin}; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )


def _code(folder: Path) -> str:
    """Return the JSON text of the modules that MicroPython imports."""
    package = Path(undertone_device.__path__[0])
    sources = {place: path for place, path in board_files().items() if "/board/" not in place}
    sources |= {f"undertone_device/{name}": package / name for name in _FURTHER}
    sources["phone.py"] = folder / "phone.py"
    return json.dumps({place: path.read_text(encoding="utf-8") for place, path in sorted(sources.items())})
