"""A stand-in for a board: a pseudo-terminal with MicroPython's raw REPL, as documented, and a real unix interpreter."""

import os
import subprocess
import threading
import tty
from pathlib import Path

from support import micropython as mp
from support.ci import pseudo_terminal

# Runs blocks of code in one namespace. Each block is answered by its output and its traceback, both ended by \x04.
_LOOP = """
import io, sys
names = {"__name__": "__main__"}
while True:
    head = sys.stdin.buffer.readline()
    if not head:
        break
    code = sys.stdin.buffer.read(int(head))
    error = io.StringIO()
    try:
        exec(code, names)
    except BaseException as raised:
        sys.print_exception(raised, error)
    sys.stdout.write("\\x04" + error.getvalue() + "\\x04")
"""
_RAW = b"raw REPL; CTRL-B to exit\r\n>"


class Board:
    """``folder`` is the board's flash, and ``path`` is the port to connect to."""

    def __init__(self, folder: Path) -> None:
        interpreter = mp.interpreter()
        assert interpreter is not None
        self._near, self._far = pseudo_terminal()
        tty.setraw(self._near)
        tty.setraw(self._far)
        self.path = os.ttyname(self._far)
        loop = folder.parent / "repl_loop.py"
        loop.write_text(_LOOP, encoding="utf-8")
        self._process = subprocess.Popen(
            [interpreter, str(loop)], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        code, raw = b"", False
        while True:
            try:
                data = os.read(self._near, 4096)
            except OSError:
                return
            for i in range(len(data)):
                byte = data[i : i + 1]
                if byte == b"\x01":
                    if code[-2:] == b"\x05A":
                        # The board understands the request for raw paste, but does not offer it.
                        os.write(self._near, b"R\x00")
                    else:
                        os.write(self._near, _RAW)
                    code, raw = b"", True
                elif byte == b"\x02":
                    os.write(self._near, b"\r\nMicroPython\r\n>>> ")
                    code, raw = b"", False
                elif byte == b"\x03":
                    code = b""
                elif byte == b"\x04":
                    if not raw or not code:
                        os.write(self._near, b"OK\r\nMPY: soft reboot\r\n" + (_RAW if raw else b">>> "))
                    else:
                        os.write(self._near, b"OK" + self._run(code) + b">")
                    code = b""
                else:
                    code += byte

    def _run(self, code: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"%d\n" % len(code) + code)
        self._process.stdin.flush()
        answer = b""
        while answer.count(b"\x04") < 2 and (data := os.read(self._process.stdout.fileno(), 65536)):
            answer += data
        return answer.replace(b"\n", b"\r\n")

    def close(self) -> None:
        """Close the serial port, as pulling the cable does."""
        self._process.kill()
        self._process.communicate()
        os.close(self._far)
        os.close(self._near)
