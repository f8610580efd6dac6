"""Releases as text, checkpoints and inputs.

Whatever the moment of a crash, nothing is drawn twice; bad input is refused in sentences.
"""

import json
import os
from fractions import Fraction

import numpy as np
import pytest

from support.central import seeded
from support.refusal import refused
from undertone_aggregator.ingest.intake import Delivery
from undertone_central import document, feed, gateway
from undertone_central import release as releases
from undertone_central.job import ReleaseJob, TextFile
from undertone_central.make import make
from undertone_shared.errors import Invalid

VALUES = np.random.default_rng(1).integers(0, 10, 90)
RELEASES = {
    "tops": {"hold_out": 10, "span": 16, "fanout": 4, "smoothing": 1},
    "parallel": {"hold_out": 10, "span": 16, "fanout": 4, "smoothing": 0, "update": "parallel"},
    "sequential": {"hold_out": 10, "span": 16, "fanout": 4, "smoothing": 0, "update": "sequential"},
    "pak": {"theta": 5, "span": 16},
    "binary": {"horizon": 100},
    "sanitizer": {"block": 20},
}


def mechanism(name, seed=1):
    return make({"parallel": "tops", "sequential": "tops"}.get(name, name), 9, 3, seeded(seed), **RELEASES[name])


class Crash(Exception):
    pass


class Crashing:
    """An output that fails once, at a given call, after it has written none, half or all of the text."""

    def __init__(self, file, calls, kept):
        self.file, self.calls, self.kept = file, calls, kept

    def append(self, text, at):
        self.calls -= 1
        if self.calls == 0:
            self.file.append(text[: int(len(text) * self.kept)], at)
            raise Crash
        self.file.append(text, at)


def release(sink, name, parts, checkpoint):
    job = ReleaseJob(mechanism(name), sink, checkpoint, {"name": name})
    for part in parts:
        job.step(part)
    job.close("hold")


@pytest.mark.slow_but("binary", "sanitizer")
@pytest.mark.parametrize("name", RELEASES)
def test_what_was_output_before_a_crash_is_never_drawn_again(tmp_path, name):
    """The job crashes at every step, after none, half or all of the text was written. Written bytes never change."""
    for step in range(1, 6):
        for kept in (0, 0.5, 1):
            path, checkpoint = tmp_path / f"{step}{kept}.csv", tmp_path / f"{step}{kept}.state"
            parts = np.split(VALUES, [20, 40, 60])
            file = TextFile(path)
            with pytest.raises(Crash):
                release(Crashing(file, step, kept), name, parts, checkpoint)
            file.close()
            before = path.read_text(encoding="utf-8")
            assert oct(os.stat(checkpoint).st_mode & 0o777) == "0o600"
            file = TextFile(path)
            job = ReleaseJob(mechanism(name, seed=2), file, checkpoint, {"name": name})
            assert job.resumed == (step > 1)
            assert job.progress.consumed == [0, 20, 40, 60, 90][step - 1]
            job.step(VALUES[job.progress.consumed :])
            job.close("hold")
            file.close()
            assert path.read_text(encoding="utf-8").startswith(before)
            assert not checkpoint.exists()
            parameters, pieces = document.read(path)
            assert parameters["guarantee"] == mechanism(name).guarantee
            straight = mechanism(name)
            assert sum(len(piece.numbers) for piece in pieces) == len(straight.extend(VALUES))


def test_a_release_reads_back_as_it_was_released(tmp_path):
    for name in RELEASES:
        path = tmp_path / f"{name}.csv"
        file = TextFile(path)
        job = ReleaseJob(mechanism(name), file, None, {})
        for part in np.split(VALUES, [1, 2, 17, 50]):
            job.step(part)
        job.close("hold")
        file.close()
        _, pieces = document.read(path)
        numbers = mechanism(name).extend(VALUES)
        assert np.concatenate([piece.numbers for piece in pieces]).tolist() == numbers.tolist()
        firsts = {"tops": [10], "parallel": [10, 36, 62, 88], "sequential": [10, 26, 42, 58, 74]}
        assert [piece.first for piece in pieces] == firsts.get(name, [0])


def test_rows_name_what_they_count(tmp_path):
    parameters = {"released": "nodes", "fanout": 2, "levels": 3}
    spans = [tuple(map(int, row.split(",")[:2])) for row in document.rows(parameters, 10, 10, np.zeros(7, int))]
    assert spans == [(10, 11), (11, 12), (10, 12), (12, 13), (13, 14), (12, 14), (10, 14)]
    assert document.rows({"released": "items", "kept_items": 2}, 0, 5, np.array([7, 8, 9, 9])) == [
        "5,7\n",
        "5,8\n",
        "6,9\n",
        "6,9\n",
    ]


def test_checkpoints_of_other_releases_are_refused(tmp_path):
    checkpoint, file = tmp_path / "state", TextFile(tmp_path / "out")
    ReleaseJob(mechanism("tops"), file, checkpoint, {"epsilon": 2})
    # Nothing was read yet, so the settings may still change.
    job = ReleaseJob(mechanism("tops"), file, checkpoint, {"epsilon": 3})
    assert not job.resumed
    job.step(np.array([1, 2]))
    with pytest.raises(Invalid, match="other settings"):
        ReleaseJob(mechanism("tops"), file, checkpoint, {"epsilon": 4})
    saved = json.loads(checkpoint.read_text(encoding="utf-8"))
    for damage in ("{", "[]", "{}", json.dumps(saved | {"progress": 3}), json.dumps(saved | {"state": {}})):
        checkpoint.write_text(damage, encoding="utf-8")
        with pytest.raises(Invalid, match=r"is not a checkpoint|does not belong|theta is"):
            ReleaseJob(mechanism("tops"), file, checkpoint, {"epsilon": 3})
    file.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,b\n",
        document.TITLE + "{\n",
        document.TITLE + "{}\nh\nx\n",
        document.TITLE + '{}\nh\n# piece {"first": 1}\n',
    ],
)
def test_other_files_are_no_releases(tmp_path, text):
    path = tmp_path / "r.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Invalid, match=r"r\.csv"):
        document.read(path)


def test_the_line_that_is_no_piece_is_named(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(
        document.TITLE + '{}\nh\n# piece {"size": 1}\n1,2\n# piece {"first": 2, "theta": 1}\n', encoding="utf-8"
    )
    with pytest.raises(Invalid, match=r"r\.csv, line 3 is not"):
        document.read(path)


def read_all(path, column=None, scale=Fraction(1)):
    said = []
    parts = list(feed.batches(path, column, scale, said.append))
    return np.concatenate(parts).tolist() if parts else [], said


def test_inputs_of_every_kind(tmp_path):
    csv = tmp_path / "a.csv"
    csv.write_text("time,kwh\n1,0.5\n2,\n3,x\n4,1.25\n5,0.0001\n\n6,-3\n", encoding="utf-8")
    assert read_all(csv, scale=Fraction(1000))[0] == [500, 0, 0, 1250, 0, -3000]
    assert read_all(csv, "time")[0] == [1, 2, 3, 4, 5, 6]
    assert read_all(csv, "0")[0] == [1, 2, 3, 4, 5, 6]
    _, said = read_all(csv, "kwh", Fraction(1000))
    assert said == [
        "a.csv, row 3: '' is not a whole number between -2^53 and 2^53 after scaling by 1000, and counts as 0",
        "a.csv, row 4: 'x' is not a whole number between -2^53 and 2^53 after scaling by 1000, and counts as 0",
        "a.csv, row 6: '0.0001' is not a whole number between -2^53 and 2^53 after scaling by 1000, and counts as 0",
    ]
    plain = tmp_path / "b.txt"
    plain.write_text(f"1\n2.{'0' * 39}\n", encoding="utf-8")
    assert read_all(plain) == ([1, 0], [f"b.txt, row 2: '2.{'0' * 38}'… has more than 40 characters, and counts as 0"])
    plain.write_text("3\n4", encoding="utf-8")
    assert read_all(plain)[0] == [3, 4]
    # A first line that is a number is no header.
    plain.write_text("2.5\n4", encoding="utf-8")
    assert read_all(plain) == (
        [0, 4],
        ["b.txt, row 1: '2.5' is not a whole number between -2^53 and 2^53, and counts as 0"],
    )
    table = tmp_path / "c.npz"
    np.savez(table, wh=np.array([[1, 2], [3, 4]]), t0=np.array("x"))
    assert read_all(table)[0] == [1, 3, 2, 4]
    np.savez(table, a=np.array([1.0, np.nan, 2.5, np.inf, 7.0]), b=np.arange(2))
    values, said = read_all(table, "a")
    assert values == [1, 0, 0, 0, 7]
    assert said == ["c.npz, values 0 to 4: 3 of these are not whole numbers between -2^53 and 2^53, and count as 0"]
    assert read_all(table, "b")[1] == []
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    parquet = tmp_path / "d.parquet"
    pandas.DataFrame({"a": [1, 2], "b": [3.0, None]}).to_parquet(parquet)
    assert read_all(parquet)[0] == [3, 0]
    assert read_all(parquet, "a")[0] == [1, 2]
    pandas.DataFrame({"a": [1.0, 2.5]}).to_parquet(parquet)
    assert read_all(parquet) == (
        [1, 0],
        ["d.parquet, row 2: '2.5' is not a whole number between -2^53 and 2^53, and counts as 0"],
    )
    assert feed.expected(csv) == 8
    assert feed.expected(table) is None


def test_a_line_that_is_being_written_is_no_number_yet_and_another_file_no_release(tmp_path):
    releases.release("unbounded", range(100), tmp_path / "out", epsilon=1, bound=1000)
    whole = (tmp_path / "out").read_bytes()
    numbers = releases.open_release(tmp_path / "out").numbers.tolist()
    for cut in range(1, 30):
        (tmp_path / "cut").write_bytes(whole[:-cut])
        read = releases.open_release(tmp_path / "cut").numbers.tolist()
        assert read == numbers[: len(read)], cut
        assert len(read) >= 90
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\xff\xfe")
    with pytest.raises(Invalid, match="picture is not a release"):
        releases.open_release(tmp_path / "picture")


class Arrived:
    """An inbox with one batch of deliveries."""

    def __init__(self, deliveries):
        self.deliveries, self.acknowledged = deliveries, []

    def take(self, seconds):
        return self.deliveries

    def acknowledge(self, deliveries):
        self.acknowledged += deliveries


def test_the_gateway_counts_the_numbers_that_it_releases(tmp_path, monkeypatch):
    inbox = Arrived([Delivery("raw", b"%d %d" % (number, number % 9), False, number) for number in range(1, 31)])
    monkeypatch.setattr(gateway, "Inbox", lambda *_: inbox)
    file = TextFile(tmp_path / "out")
    job = ReleaseJob(mechanism("tops"), file, tmp_path / "state", {})
    assert gateway.Gateway(job, None, "raw", "id", Fraction(1), print).step() == 20
    assert inbox.acknowledged == inbox.deliveries
    assert job.progress.consumed == 30
    file.close()


def test_a_damaged_line_is_named_by_its_number(tmp_path):
    releases.release("unbounded", range(4), tmp_path / "out", epsilon=1, bound=1000)
    lines = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    for number in (1, 3, 5):
        for wrong in ("x", str(1 << 63)):
            damaged = [*lines[: number - 1], lines[number - 1][:20] + wrong, *lines[number:]]
            (tmp_path / "damaged").write_text("\n".join(damaged) + "\n", encoding="utf-8")
            with pytest.raises(Invalid, match=f"line {number} is not"):
                releases.open_release(tmp_path / "damaged")


def test_bad_inputs_in_one_sentence(tmp_path):
    csv = tmp_path / "a.csv"
    csv.write_text("time,kwh\n1,2\n", encoding="utf-8")
    with refused("a.csv", "'wh'"):
        read_all(csv, "wh")
    with refused("a.csv", 2, 0, 1):
        read_all(csv, "2")
    csv.write_bytes("größe,kwh\né,2\n".encode("latin-1"))
    assert read_all(csv)[0] == [2]
    csv.write_text("7," + "x" * 200_000, encoding="utf-8")
    with pytest.raises(Invalid, match=r"a\.csv cannot be read as comma-separated text: field larger"):
        read_all(csv)
    for suffix in (".npz", ".parquet"):
        broken = tmp_path / f"x{suffix}"
        broken.write_bytes(b"nothing of the kind")
        with pytest.raises(Invalid, match=f"x{suffix} is not a"):
            read_all(broken)
    table = tmp_path / "c.npz"
    np.savez(table, a=np.arange(2), b=np.arange(2))
    np.savez(tmp_path / "e.npz", text=np.array(["a"]))
    with pytest.raises(Invalid, match="holds no array of one or two dimensions with numbers in it"):
        read_all(tmp_path / "e.npz")
    np.savez(tmp_path / "e.npz", none=np.zeros(0))
    with pytest.raises(Invalid, match="holds no array of one or two dimensions with numbers in it"):
        read_all(tmp_path / "e.npz")
    with pytest.raises(Invalid, match="holds the arrays of numbers a, b: name one"):
        read_all(table)
    for cell in ("1e999999999", "nan", "inf", "9" * 39, "9" * 50, "1/0"):
        assert feed.parse(cell, Fraction(1)) in (None, 1)


def test_plain_digits_and_other_numbers_are_read_alike():
    for cell in ("0", "7", "500", "999999999999999"):
        for scale in (Fraction(1), Fraction(1000), Fraction(1, 10), Fraction(7, 500)):
            assert feed.parse(cell, scale) == feed.parse(cell + ".0", scale)


def test_lines_of_a_pipe_come_in_batches_as_they_arrive():
    read, write = os.pipe()
    try:
        lines = feed.PipeLines(read)
        values = feed.as_they_come(lines, feed.text_values(lines, None, Fraction(1), print, "pipe"))
        os.write(write, b"value\n1\n2\n3\n4")
        assert next(values).tolist() == [1, 2, 3]
        os.write(write, b"5\n")
        assert next(values).tolist() == [45]
        os.write(write, b"6")
        os.close(write)
        assert [part.tolist() for part in values] == [[6]]
    finally:
        os.close(read)
