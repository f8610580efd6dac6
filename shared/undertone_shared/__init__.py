"""Shared code on which devices and servers must agree to the last bit.

It uses the MicroPython subset, integers only, and no third-party imports. Import the modules by name (``from
undertone_shared.report import pack``): this package imports nothing, so that a board loads only what it uses.
"""
