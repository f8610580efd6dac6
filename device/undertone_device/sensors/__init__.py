"""Meters' protocols and pulses, as integers in the campaign's unit. No port, no socket: bytes go in, readings come out.

A decoder's ``feed(data)`` returns the readings that the bytes complete and counts damaged frames in ``bad``. A frame
whose checksum does not fit is never a reading.
May import: nothing.
Start reading: ``p1.py``, ``sml.py``, ``iec62056.py``, ``modbus.py``, ``pulses.py``, one protocol each.
"""
