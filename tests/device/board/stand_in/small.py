"""Runs a program with the C stack of a small board, and with its code in files or in flash.

Arguments: PROGRAM STACK IMAGE ARGUMENT... STACK is the size of a board's C stack in bytes, with words of 32 bits. An
interpreter with words of 64 bits gets twice as much. IMAGE is a read-only file system that is mounted before anything
is imported, or "-" for none.

The program runs in a thread whose stack has this size. The main thread makes the program's imports, because the unix
port takes 4 KB of the stack for each path that it looks up, where a board takes 128 bytes. At the end, "stack N,
imports D" says how much of a board's stack the deepest import would take, and how many imports were nested in it.
"""

# ruff: noqa: E402

import gc

# As in main.py, before anything is loaded.
gc.threshold(4096)

import _thread
import builtins
import sys

import micropython

# What one import takes, with the module's own code, on a Cortex-M: six nested imports took 10.2 KB there, three took
# 5.6 KB.
IMPORT_BYTES = 1620
# How many words of a board fit into a word of this interpreter.
WORDS = 1 if sys.maxsize < 1 << 32 else 2
# The number of bytes that the unix port keeps free in a thread's stack.
MARGIN_BYTES = 8192


class Imports:
    """Makes the imports of another thread, one at a time, and counts how deeply they are nested."""

    def __init__(self):
        self.most = 0
        self.bytes = 0
        self._import = builtins.__import__
        self._main = _thread.get_ident()
        self._asked = _thread.allocate_lock()
        self._answered = _thread.allocate_lock()
        self._asked.acquire()
        self._answered.acquire()
        self._arguments = None
        self._answer = None
        # The modules that are being imported, outermost first.
        self._nested = []
        self._deepest = 0
        builtins.__import__ = self.take

    def take(self, *arguments):
        """Import a module, in either thread. An import statement calls this function."""
        if _thread.get_ident() == self._main:
            return self._count(arguments)
        used = micropython.stack_use() // WORDS
        self._deepest = 0
        self._arguments = arguments
        self._asked.release()
        self._answered.acquire()
        self.most = max(self.most, self._deepest)
        self.bytes = max(self.bytes, used + self._deepest * IMPORT_BYTES)
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    def _count(self, arguments):
        wanted = arguments[3] if len(arguments) > 3 else None
        name = self._absolute(arguments[0], arguments[4] if len(arguments) > 4 else 0)
        made = self._make(name, wanted)
        # The interpreter would import these modules of a package without calling `take`.
        for each in wanted or ():
            if hasattr(made, "__path__") and not hasattr(made, each):
                self._make(name + "." + each, None)
        return made

    def _absolute(self, name, level):
        """Return the whole name of a module. Only the top of a module, while it is imported, has relative names."""
        if not level:
            return name
        package = ".".join(self._nested[-1].split(".")[:-level])
        return package + "." + name if name else package

    def _make(self, name, wanted):
        # The import of main does not count, because a board runs its main.py without importing it.
        if name in sys.modules or name == "main":
            return self._import(name, None, None, wanted, 0)
        self._nested.append(name)
        try:
            made = self._import(name, None, None, wanted, 0)
        finally:
            self._nested.pop()
        # A module in C does not count, because it runs no code of its own.
        if hasattr(sys.modules.get(name), "__file__"):
            self._deepest = max(self._deepest, len(self._nested) + 1)
        return made

    def serve(self):
        """Make the other thread's imports, in the main thread, until ``end`` is called."""
        while True:
            self._asked.acquire()
            if self._arguments is None:
                return
            try:
                self._answer = self._count(self._arguments)
            except BaseException as error:
                self._answer = error
            self._answered.release()

    def end(self):
        """Tell `serve` that no more imports come."""
        self._arguments = None
        self._asked.release()


def mount(path):
    """Mount the image as a board has its ROMFS."""
    import os

    import vfs

    image = bytearray(os.stat(path)[6])
    with open(path, "rb") as file:
        file.readinto(image)
    vfs.mount(vfs.VfsRom(image), "/rom")
    sys.path.insert(0, "/rom")


def run():
    """Run the program, in the thread with the small stack."""
    try:
        with open(program, encoding="utf-8") as file:
            text = file.read()
        exec(compile(text, program, "exec"), {"__name__": "__main__"})
    except SystemExit:
        pass
    except BaseException as error:
        sys.print_exception(error)
    imports.end()


program, stack, image = sys.argv[1:4]
sys.argv[:] = sys.argv[1:2] + sys.argv[4:]
sys.path[0] = program[: program.rindex("/")]
if image != "-":
    mount(image)
imports = Imports()
_thread.stack_size(WORDS * int(stack) + MARGIN_BYTES)
_thread.start_new_thread(run, ())
imports.serve()
print(f"stack {imports.bytes}, imports {imports.most}")
