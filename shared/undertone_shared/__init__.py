"""What both ends of Undertone must agree on to the last bit.

MicroPython subset, integers only, no third-party import. Import the modules by name
(``from undertone_shared.report import pack``): nothing is loaded here, so that a board pays only for what it uses.
"""
