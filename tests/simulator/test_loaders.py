import numpy as np
import pytest

from support.refusal import told
from undertone_shared.errors import Invalid
from undertone_simulator.readings.bounds import public_bound
from undertone_simulator.readings.loaders import load, natural_unit
from undertone_simulator.readings.readings import Readings


def written(folder, text, name="readings.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_wide_csv_with_header_times_and_unit(tmp_path):
    path = written(
        tmp_path,
        "time (kWh),a,b\n2024-01-01 00:00,0.1,0.25\n2024-01-01 00:30,0.2,\n2024-01-01 01:30,0.4,0.5\n",
    )
    readings = load(path)
    assert readings.unit == "Wh"
    assert readings.step_seconds == 1800
    assert readings.start == "2024-01-01 00:00:00"
    assert readings.values.tolist() == [[100, 200, 0, 400], [250, 0, 0, 500]]
    assert readings.present.tolist() == [[True, True, False, True], [True, False, False, True]]


def test_wide_csv_without_header_or_times(tmp_path):
    readings = load(written(tmp_path, "1,2\n3,4\n5,6\n"))
    assert readings.values.tolist() == [[1, 3, 5], [2, 4, 6]]
    assert (readings.unit, readings.start, readings.step_seconds, readings.notes) == ("", "", 0, [])


def test_long_csv_is_pivoted(tmp_path):
    rows = "id,when,Wh\nb,2024-01-01T01:00,7\na,2024-01-01T00:00,1\na,2024-01-01T00:30,2\na,2024-01-01T01:00,3\n"
    readings = load(written(tmp_path, rows))
    assert readings.values.tolist() == [[1, 2, 3], [0, 0, 7]]
    assert readings.present.tolist() == [[True, True, True], [False, False, True]]
    assert readings.unit == "Wh"


@pytest.mark.parametrize(
    ("name", "unit"),
    [("load (Wh)", "Wh"), ("energy_wh", "Wh"), ("energy[kWh]", "Wh"), ("which", ""), ("load (MWh)", "")],
)
def test_a_column_name_may_say_the_unit(tmp_path, name, unit):
    assert load(written(tmp_path, f"time,{name}\n2024-01-01 00:00,1\n2024-01-01 00:30,2\n")).unit == unit


def test_bad_rows_are_named_and_become_gaps(tmp_path):
    text = (
        "id,time,value\na,2024-01-01 00:00,1\na,2024-01-01 00:30,x\na,yesterday,3\na,2024-01-01 01:00,4\n"
        "a,2024-01-01 01:00,5\na,2024-01-01 01:07,6\na,2024-01-01 01:30\na,2024-01-01 02:00,7\na,2024-01-01 02:30,8\n"
        "a,2024-01-01 03:00,9\n"
    )
    readings = load(written(tmp_path, text))
    assert readings.values[readings.present].tolist() == [1, 4, 7, 8, 9]
    expected = [
        ("row 8", 2, 3),
        ("row 3", "'x'"),
        ("row 4", "'yesterday'"),
        ("row 6", "a", "2024-01-01 01:00:00", 4),
        ("row 7", "time", 1800),
        (2, 7),
    ]
    for note, facts in zip(readings.notes, expected, strict=True):
        assert told(note, "readings.csv", *facts), note


def test_many_bad_rows_are_counted(tmp_path):
    text = "1,2\n" + "1,x\n" * 30
    notes = load(written(tmp_path, text)).notes
    assert told(notes[0], "readings.csv", "row 2", "column 2", "'x'")
    assert told(notes[20], "readings.csv", 10)
    assert told(notes[21], "readings.csv", 30, 62)


def test_london_household(undertone_data):
    readings = load(undertone_data / "london_MAC000002.csv")
    assert readings.values.shape == (1, 24192)
    assert (readings.unit, readings.step_seconds) == ("Wh", 1800)
    assert sum("repeats an earlier row" in note for note in readings.notes) == 17
    assert told(readings.notes[0], "london_MAC000002.csv", "row 3242", "'Null'")
    # The file has 24,158 rows. One is Null, and 17 are repeated.
    assert np.count_nonzero(readings.present) == 24140


def test_edrp_archive(undertone_data):
    readings = load(undertone_data / "edrp_scotland_622x4416_halfhour_wh.npz")
    assert readings.values.shape == (622, 4416)
    assert (readings.unit, readings.start, readings.per_day) == ("Wh", "2009-03-01 00:00:00", 48)
    assert readings.values.mean() == pytest.approx(219.07, abs=0.01)


def test_kwh_archive_with_gaps(tmp_path):
    np.savez(tmp_path / "x.npz", kwh=np.array([[0.5, np.nan], [0.123, 2.0]], dtype=np.float32))
    readings = load(tmp_path / "x.npz")
    assert readings.values.tolist() == [[500, 0], [123, 2000]]
    assert readings.notes == ["x.npz, array kwh: 1 of 4 readings are missing or too large"]


def test_a_stream_is_dealt_in_its_order(tmp_path):
    np.savez(tmp_path / "x.npz", v=np.arange(7))
    assert load(tmp_path / "x.npz", devices=3).values.tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(Invalid, match="7 readings, expected at least 8"):
        load(tmp_path / "x.npz", devices=8)


def test_a_long_table_whose_households_are_numbers_is_refused(tmp_path):
    rows = "".join(f"2024-01-01T0{hour}:00,{name},{hour + name}\n" for hour in range(3) for name in (7, 8))
    with pytest.raises(Invalid, match="the households are numbers, expected names with a letter, such as h7"):
        load(written(tmp_path, "when,id,Wh\n" + rows))


def test_a_wide_table_of_two_households_may_repeat_the_hour_in_which_summer_time_ends(tmp_path):
    hours = ("01:00", "02:00", "02:00", "03:00", "04:00")
    readings = load(written(tmp_path, "time,h7,h8\n" + "".join(f"2024-10-27 {hour},1,2\n" for hour in hours)))
    assert readings.values.tolist() == [[1] * 4, [2] * 4]


def test_parquet_long_and_wide(tmp_path):
    pandas = pytest.importorskip("pandas", reason="needs pandas, of the extra 'all'")
    pytest.importorskip("pyarrow", reason="needs pyarrow, of the extra 'all'")
    times = pandas.date_range("2024-01-01", periods=3, freq="30min")
    pandas.DataFrame({"id": ["a"] * 3, "time": times, "kwh": [0.1, None, 0.3]}).to_parquet(tmp_path / "long.parquet")
    long = load(tmp_path / "long.parquet")
    assert long.values[long.present].tolist() == [100, 300]
    assert told(long.notes[0], "long.parquet", "row 3", "''")
    pandas.DataFrame({"a": [1, 2], "b": [3, 4]}).to_parquet(tmp_path / "wide.parquet")
    assert load(tmp_path / "wide.parquet").values.tolist() == [[1, 2], [3, 4]]


def test_more_devices_than_households_replay_them_a_week_later(tmp_path):
    np.savez(tmp_path / "x.npz", wh=np.arange(2 * 400).reshape(2, 400), step_min=np.array(30))
    readings = load(tmp_path / "x.npz")
    assert [readings.at(0, 0), readings.at(1, 1), readings.at(2, 0), readings.at(3, 100)] == [0, 401, 336, 400 + 36]


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        ("x.txt", "1,2", ("'.txt'", ".npz", ".csv", ".parquet")),
        ("x.csv", "", ("empty",)),
        ("x.csv", "a,b\n", ("header", "row")),
        ("x.csv", "a,0.5\nb,0.25\n", ("column 1", "number")),
        ("x.csv", "0.5,0.5\n", ("fractions", "unit", "kwh")),
        ("x.csv", "a,b\nx,y\n", ("reading",)),
        ("x.npz", "not zip", ("NumPy",)),
        ("x.csv", "h,t,v\na,0001-01-01,1\na,0001-01-01 00:00:01,1\na,9999-01-01,1\n", ("time",)),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path, name, text, facts):
    with pytest.raises(Invalid) as caught:
        load(written(tmp_path, text, name))
    (line,) = str(caught.value).splitlines()
    assert told(line, name, *facts)


HOME_ASSISTANT = """entity_id,state,last_changed
sensor.energy,0.25,2024-01-01T00:00:00.000Z
sensor.energy,unavailable,2024-01-01T00:30:00.000Z
sensor.energy,0.5,2024-01-01T01:00:00.000Z
"""


def test_rows_of_household_time_and_value_in_any_order(tmp_path):
    readings = load(written(tmp_path, HOME_ASSISTANT), "kwh")
    assert readings.values[readings.present].tolist() == [250, 500]
    assert readings.households == 1
    assert told(readings.notes[0], "readings.csv", "row 3", "'unavailable'")
    off_at_first = HOME_ASSISTANT.replace("0.25", "unknown")
    assert load(written(tmp_path, off_at_first), "kwh").households == 1


def test_a_column_without_a_number_is_no_household(tmp_path):
    text = "meter,state,last_changed,quality\na,1,2024-01-01 00:00,good\na,2,2024-01-01 00:30,good\n"
    with pytest.raises(Invalid, match=r"readings\.csv: meter has no number in it, expected readings in every column"):
        load(written(tmp_path, text))


def test_units():
    assert natural_unit("kWh") == ("Wh", 1000)
    assert natural_unit("litre") == ("litre", 1)
    with pytest.raises(Invalid, match="at most 16"):
        natural_unit("x" * 17)


@pytest.mark.parametrize(("minutes", "seconds"), [(15, 900), (0.5, 30), (0, 0), (-30, 0), (float("nan"), 0), ("x", 0)])
def test_what_is_no_length_of_a_slot_is_not_known(tmp_path, minutes, seconds):
    np.savez(tmp_path / "readings.npz", wh=np.ones((2, 4), int), step_min=np.array(minutes))
    assert load(tmp_path / "readings.npz").step_seconds == seconds


def test_without_a_stated_bound_readings_are_below_the_limit_that_the_refusal_names():
    def of(reading):
        return Readings(np.array([[reading]]), np.array([[True]]), "x")

    assert public_bound(of(2**21 - 1), None)[0] == 2**21
    with pytest.raises(Invalid, match=r"expected less than 2\^21"):
        public_bound(of(2**21), None)
