"""The bytes of a stored ledger are those of the table of fields in `undertone_device.core.ledger`."""

import hashlib
import struct

from undertone_device.core import acceptance
from undertone_device.core.ledger import DAYS, DEFAULT_OUTBOX, FILE, GROUPS, Ledger

REPORT = bytes(range(24))
# The fields of the header in the order of the table, each with a value of its own. One report is in the outbox.
FIELDS = (1800000001, 2, 3, 4, 20000, 6, 1, b"current!", b"the next", 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
NAMES = (
    ("spent_until", 0),
    ("last_epoch", 1),
    ("uptime", 2),
    ("sequence", 3),
    ("day", 4),
    ("boots", 5),
    ("current", 7),
    ("next", 8),
    ("rho_period", 9),
    ("rho", 10),
    ("rho_since", 11),
    ("window", 12),
    ("window_until", 13),
    ("reports", 14),
    ("chains", 15),
    ("ever", 16),
    ("ever_rho", 17),
    ("began", 18),
    ("handover", 19),
)


class Stored:
    def __init__(self, data=None):
        self.data = data

    def read(self, name):
        assert name == FILE
        return self.data

    def write(self, name, data):
        assert name == FILE
        self.data = bytes(data)


def stored():
    header = b"UTL3" + struct.pack(">IIIIIHH8s8sIIIIIHHQQII", *FIELDS)
    days = [0] * DAYS
    days[20000 % DAYS] = 21
    sums = struct.pack(">HHIIIII", 2, 1, 5, 3, 0, 0, 20000) + struct.pack(">%dI" % DAYS, *days)
    groups = struct.pack(">IIII", 1799990000, 40, 1799999000, 50) + bytes(8 * (GROUPS - 2))
    data = header + sums + groups + REPORT
    return data + hashlib.sha256(data).digest()[:8]


def test_the_table_of_fields_is_what_is_read():
    assert len(stored()) == 624 + 24 + 8
    ledger = Ledger(Stored(stored()), 4)
    assert not ledger.lost
    for name, place in NAMES:
        assert getattr(ledger, name) == FIELDS[place], name
    assert len(ledger.outbox) == 1
    assert ledger.outbox[0] == REPORT


def test_the_table_of_fields_is_what_is_written_byte_for_byte():
    storage = Stored()
    ledger = Ledger(storage, 4)
    for name, place in NAMES:
        setattr(ledger, name, FIELDS[place])
    ledger.outbox.append(REPORT)
    for name, value in (("_groups", 2), ("_newest", 1), ("_size", 5), ("_count", 3)):
        setattr(ledger.sums, name, value)
    ledger.sums.spend(20000, 21)
    struct.pack_into(">IIII", ledger.sums.buffer, 24 + 4 * DAYS, 1799990000, 40, 1799999000, 50)
    ledger.write(0, 0, 0)
    assert storage.data == stored()


def test_a_file_whose_check_is_wrong_is_none():
    for place in (0, 5, 100, 630, len(stored()) - 1):
        wrong = bytearray(stored())
        wrong[place] ^= 1
        assert Ledger(Stored(bytes(wrong)), 4).lost, place


def test_a_device_keeps_by_default_the_reports_of_as_many_slots_as_a_server_still_takes():
    assert DEFAULT_OUTBOX == acceptance._LATE_SLOTS
