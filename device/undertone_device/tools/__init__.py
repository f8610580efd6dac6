"""Tools on a PC for boards and services: compile, flash, label, install. CPython only.

May import: board, host, setup.
Start reading: ``commands.py``, the commands; ``compile.py`` makes what boards load.
"""
