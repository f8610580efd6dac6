"""Code for boards only: receive the first files over the serial line, and fetch new code.

A board starts in ``device/main.py``, which loads these modules when it needs them.
May import: setup.
Start reading: ``receive.py``, ``update.py``.
"""
