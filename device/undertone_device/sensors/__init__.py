"""Decoders of meters' protocols and pulses: bytes in, integers in the campaign's unit out; without ports or sockets.

The decoders of P1, SML and IEC 62056-21 have ``feed(data)``, which returns the readings that the bytes complete and
counts damaged frames in ``bad``. A frame whose checksum does not fit is never a reading.
May import: nothing.
Start reading: ``p1.py``, ``sml.py``, ``iec62056.py``, ``modbus.py``, ``pulses.py``, one protocol each.
"""
