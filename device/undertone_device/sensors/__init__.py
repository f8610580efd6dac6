"""What meters say, as integers in the campaign's unit. No port, no socket: bytes in, readings out.

A decoder's ``feed(data)`` returns the readings that the bytes complete and counts in ``bad`` what was damaged. A frame
whose checksum does not fit is never a reading.
"""
