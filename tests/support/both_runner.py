# Runs under MicroPython: imports a test module and reports on each of its named functions. See both.py.
import gc
import os
import sys


def run(folders, module, names):
    sys.path.extend(folders.split(":"))
    tests = __import__(module)
    scratch = os.getcwd()
    for name in names:
        gc.collect()
        os.mkdir(name)
        os.chdir(name)
        try:
            getattr(tests, name)()
            outcome = "ok"
        except (Exception, SystemExit) as error:
            sys.print_exception(error, sys.stdout)
            outcome = "FAIL"
        print("\n===", outcome, name)
        os.chdir(scratch)


run(sys.argv[1], sys.argv[2], sys.argv[3:])
