import pytest

from undertone_shared.errors import Invalid
from undertone_simulator.wire.ledger import REPORT, THRESHOLD, FleetLedger, LedgerTail, Play, read_ledgers

ONE = bytes(range(16))
TWO = bytes(range(16, 32))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


def ledger_at(path, start=1000):
    times = iter(range(start, start + 1000))
    return FleetLedger(path, lambda: next(times))


def test_what_is_written_is_read(path):
    ledger = ledger_at(path)
    ledger.play(Play(100, 48, 4, THRESHOLD))
    ledger.sent("a", ONE)
    ledger.sent("a", ONE)
    ledger.sent("b", TWO)
    ledger.acked("a", ONE)
    ledger.lost("b", TWO, "killed")
    ledger.fault("killed", "b")
    ledger.close()
    read = read_ledgers([path])
    assert read.sent == {("a", ONE): 1001, ("b", TWO): 1003}
    assert read.acked == {("a", ONE): 1004}
    assert read.lost == {("b", TWO): "killed"}
    assert read.faults == [(1006, "killed", "b")]
    assert (read.lines, read.torn) == (7, 0)
    assert read.unacked() == {}


def test_nothing_reaches_the_disk_before_flush(path):
    ledger = ledger_at(path)
    ledger.sent("a", ONE)
    assert path.read_bytes() == b""
    ledger.flush()
    assert read_ledgers([path]).unacked() == {"a": [ONE]}
    ledger.close()


@pytest.mark.parametrize("kept", [5, 30, -1])
def test_a_torn_line_is_not_a_line(path, kept):
    ledger = ledger_at(path)
    ledger.sent("a", ONE)
    ledger.sent("a", TWO)
    ledger.close()
    whole = path.read_bytes()
    end = whole.index(b"\n") + 1
    path.write_bytes(whole[: end + kept] if kept > 0 else whole[:-1])
    assert list(read_ledgers([path]).sent) == [("a", ONE)]
    again = ledger_at(path, 2000)
    again.sent("b", TWO)
    again.close()
    read = read_ledgers([path])
    # A torn line may still be valid by chance. Then it counts, and its device has the report in its outbox.
    assert {("a", ONE), ("b", TWO)} <= set(read.sent)
    assert read.torn <= 1


def test_columns_follow_the_last_play_before_a_slot(path):
    ledger = ledger_at(path)
    ledger.play(Play(100, 0, 4, THRESHOLD))
    ledger.play(Play(112, 48, 1, REPORT))
    ledger.close()
    read = read_ledgers([path])
    assert [read.column(slot) for slot in (99, 100, 103, 111, 112, 115)] == [None, 0, 12, 44, 48, 51]


def test_the_log_of_a_device_is_a_ledger(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        f"start m-1\nstate online\nsent 17 {ONE.hex()}\nacked 18 {ONE.hex()}\nend 1 1 0 0\nsent 19 {TWO.hex()}",
        encoding="utf-8",
    )
    read = read_ledgers([log])
    assert read.sent == {("m-1", ONE): 17000}
    assert read.acked == {("m-1", ONE): 18000}
    assert read.torn == 0


def test_a_tail_sees_what_is_appended(path):
    ledger = ledger_at(path)
    ledger.flush()
    tail = LedgerTail(path)
    assert not tail.poll().sent
    ledger.sent("a", ONE)
    ledger.flush()
    assert len(tail.poll().sent) == 1
    ledger.sent("a", TWO)
    ledger.close()
    assert len(tail.poll().sent) == 2


@pytest.mark.parametrize("text", ["hello\nworld\n", "1 sent a xx\n", "1 dance a\n", "1\n"])
def test_another_file_is_no_ledger(path, text):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Invalid, match="is not a ledger"):
        read_ledgers([path])
