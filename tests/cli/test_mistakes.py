"""Mistakes that people make with their data and commands: each is answered by one clear sentence."""

import json
import socket
from pathlib import Path

import numpy as np
import pytest

from support.command import undertone
from undertone_central.release import release
from undertone_shared.errors import Invalid

RELEASE = ("--epsilon", "1", "--bound", "10")
CREATE = ("campaign", "create", "home", "b", "--sensor", "t", "--unit", "Wh", "--bound", "90", "--epsilon", "1")


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    """The readings of two homes in Wh, from 1000 on, of which four are missing."""
    readings = 1000.0 + np.arange(2 * 96).reshape(2, 96)
    readings[0, :4] = np.nan
    np.savez(tmp_path / "homes.npz", wh=readings)
    return tmp_path / "homes.npz"


def sentences_of_plan(*words: object) -> list[str]:
    done = undertone("plan", *words, "--json", "--campaigns", 1)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["warnings"])


def test_a_plan_says_what_it_makes_of_a_file(homes: Path) -> None:
    said = sentences_of_plan("--data", homes, "--devices", "1000", "--bound", "20000")
    assert "homes.npz, array wh: 4 of 192 readings are missing or too large" in said
    assert (
        "homes.npz has 2 series of readings for 1000 devices: the other devices are taken to repeat these series"
        in said
    )
    assert not [sentence for sentence in said if "above the bound" in sentence]
    said = sentences_of_plan("--data", homes, "--devices", "2", "--bound", "20000")
    assert not [sentence for sentence in said if "series of readings" in sentence]


@pytest.mark.parametrize(("bound", "what"), [(900, "every reading is"), (1050, "75% of the readings are")])
def test_a_bound_in_another_unit_is_noticed(homes: Path, bound: int, what: str) -> None:
    said = sentences_of_plan("--data", homes, "--devices", "2", "--bound", bound)
    assert f"warning: {what} above the bound {bound}: is the bound in the unit of the readings, Wh?" in said


def test_a_window_says_it_too(homes: Path) -> None:
    done = undertone(
        "plan", "--data", homes, "--bound", "900", "--window", "24h", "--devices", "1000", "--campaigns", 1
    )
    assert "every reading is above the bound 900" in " ".join(done.stdout.split())
    assert "homes.npz has 2 series of readings for 1000 devices" in " ".join(done.stdout.split())


@pytest.mark.parametrize("mechanism", ["tops", "pak"])
def test_a_release_of_too_few_values_leaves_nothing_and_can_be_repeated(tmp_path: Path, mechanism: str) -> None:
    (tmp_path / "w.csv").write_text("wh\n" + "3\n" * 40, encoding="utf-8")
    words = ("release", mechanism, *RELEASE, "--input", tmp_path / "w.csv", "--output", tmp_path / "o.csv")
    done = undertone(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "error: nothing is released: all 40 values were held out for the threshold; use a shorter --hold-out, or"
        " --theta"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["w.csv"]
    assert undertone(*words, "--theta", "5").returncode == 0
    with pytest.raises(Invalid, match="nothing is released"):
        release(mechanism, [1, 2, 3], tmp_path / "other.csv", epsilon=1, bound=10)
    with pytest.raises(Invalid, match="nothing is released: the input has no values"):
        release(mechanism, [], tmp_path / "other.csv", epsilon=1, bound=10)


def test_a_column_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("day,wh\n1,3\n", encoding="utf-8")
    words = ("release", "unbounded", *RELEASE, "--input", tmp_path / "w.csv", "--output", tmp_path / "o.csv")
    done = undertone(*words, "--column", "zz")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: w.csv has the columns day, wh, expected one named 'zz'"
    assert [path.name for path in tmp_path.iterdir()] == ["w.csv"]
    assert undertone(*words, "--column", "wh").returncode == 0


def test_values_of_a_release_above_the_bound_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("wh\n" + "300\n" * 9, encoding="utf-8")
    words = ("release", "unbounded", *RELEASE, "--input", tmp_path / "w.csv")
    warning = "warning: every value is above the bound 10: is the bound in the unit of the values? See --scale"
    assert warning in undertone(*words, "--output", tmp_path / "a.csv").stderr
    (tmp_path / "w.csv").write_text("wh\n" + "300\n" * 9 + "10\n", encoding="utf-8")
    assert "above the bound" not in undertone(*words, "--output", tmp_path / "b.csv").stderr


def test_an_empty_cell_of_a_parquet_file_is_said(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"wh": pandas.array([1, None, 3], dtype="Int64")}).to_parquet(tmp_path / "w.parquet")
    words = ("release", "unbounded", *RELEASE, "--input", tmp_path / "w.parquet", "--output", tmp_path / "o.csv")
    assert (
        "w.parquet, row 2: '' is not a whole number between -2^53 and 2^53, and counts as 0" in undertone(*words).stderr
    )


def test_an_option_of_a_plan_that_is_nearly_right_is_suggested(tmp_path: Path) -> None:
    assert undertone("init", tmp_path / "home").returncode == 0
    words = ("--sensor", "s", "--unit", "Wh", "--bound", "90", "--epsilon", "1", "--set", "cohort_shar=0.1")
    done = undertone("campaign", "create", tmp_path / "home", "a", *words)
    assert done.returncode == 2
    assert "unknown option 'cohort_shar'" in done.stderr
    assert done.stderr.rstrip().endswith(": did you mean cohort_share?")


def test_a_number_below_the_least_one_is_said(tmp_path: Path) -> None:
    done = undertone("query", tmp_path / "s.sqlite", "--newest", "-3")
    assert (done.returncode, done.stderr) == (2, "error: --newest is '-3', expected a number from 1\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("certify", "--epsilon", "1", "--table", "w.csv"), "w.csv: the file is not JSON"),
        (("certify", "--epsilon", "1", "--message", "w.csv"), "w.csv: the campaign is not JSON"),
        (("query", "w.csv"), "w.csv cannot be used as a store: file is not a database"),
        (("restore", "w.csv", "home"), "w.csv is not a complete backup of a server's folder"),
        (("release", "query", "w.csv", "--range", "0:1"), "w.csv is not a release"),
        (("simulate", "--data", "w.txt"), "w.txt ends in '.txt', expected .npz, .csv or .parquet"),
        (("simulate", "--data", "no.npz"), "no.npz is not a NumPy archive of plain arrays"),
        (("simulate", "--plan", "no.npz"), "no.npz is not UTF-8 text"),
    ],
)
def test_a_file_of_another_kind_is_named(
    words: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("w.csv", "w.txt"):
        (tmp_path / name).write_text("wh\n1\n2\n" * 200, encoding="utf-8")
    (tmp_path / "no.npz").write_bytes(b"\xff\xfe\x00")
    done = undertone(*words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert sentence in line


def test_a_port_that_is_in_use_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words in (
            ("init", tmp_path / "home", "--port", port, "--health", "127.0.0.1:0"),
            (
                "campaign",
                "create",
                tmp_path / "home",
                "a",
                "--sensor",
                "s",
                "--unit",
                "Wh",
                "--bound",
                "90",
                "--epsilon",
                "1",
            ),
        ):
            assert undertone(*words).returncode == 0
        done = undertone("serve", tmp_path / "home", "--seconds", "60")
        examined = undertone("doctor", tmp_path / "home")
    said = f"port {port} of 127.0.0.1 is in use already: end what uses it, or choose another port in [broker]"
    # A server cannot work without its port. It ends, and does not wait for the port.
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"error: {said}"
    assert f"devices: {said}" in examined.stdout


def test_a_backup_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = undertone("restore", tmp_path / "nosuch.tar", tmp_path / "home")
    assert done.returncode == 2
    said = f"error: the backup {tmp_path}/nosuch.tar is not there, expected a file that undertone backup has made\n"
    assert done.stderr == said
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("plan", "--epsilon", "0"), "--epsilon is '0', expected a number from 0.05 to 8"),
        (("plan", "--mechanism", "zz"), "--mechanism is 'zz', expected one of auto, hybrid, piecewise, optimal"),
        (("plan", "--window", "24h", "--error", "5%"), "--error cannot be given with window"),
        (("plan", "--data", "folder"), "folder is a folder, expected a file that ends in .npz, .csv or .parquet"),
        (("plan", "--data", "below.csv"), "the smallest reading is -5, expected 0 or more without --bound"),
        (("simulate", "--drop-out", "1.5"), "--drop-out is 1.5, expected a share from 0 to 1"),
        (("simulate", "--plan", "late.toml"), "campaign.blocks is 9, expected an integer from 1 to 8"),
        (("simulate", "--png", "none/a.png"), "--png is 'none/a.png', expected a file in a folder that exists"),
        (("web", "a.sqlite", "--home", "home"), "stores cannot be given with --home, which shows all campaigns"),
        (("move", "home", "h:99999"), "the address is 'h:99999', expected HOST or HOST:PORT"),
        (("query", "a.sqlite", "--first", "-1"), "--first is -1, expected the number of a slot, from 0"),
        (("campaign", "extend", "home", "a"), "the new end is missing, expected --by or --until"),
        (("campaign", "log", "home", "a"), "there is no campaign in home"),
        (("simulate", "--drop-out", "1", "--devices", "9", "--slots", "1"), "more slots or a smaller --drop-out"),
        (("devices", "add", "two", "--home", "home"), "N is not a whole number, expected one such as 5"),
        (("device", "run", "--config", "none.json"), "none.json: No such file or directory"),
        (("device", "run", "--config", "bad.json"), "bad.json: the configuration is not JSON"),
        (
            ("device", "pause", "--config", "x", "--hours", "-1"),
            "--hours is '-1', expected whole hours from 1 to 100000",
        ),
        (("device", "run"), "one of the arguments --config --all is required; see undertone device run --help"),
        ((*CREATE, "--preview", "--devices", "-5"), "--devices is -5, expected an integer from 1 to 1000000000"),
        ((*CREATE, "--epsilon", "9"), "campaign.epsilon is '9', expected a number from 0.05 to 8"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_field_and_leaves_nothing(
    words: tuple[str, ...], sentence: str, mistaken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mistaken)
    before = files_of(mistaken)
    done = undertone(*words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert sentence in line
    assert files_of(mistaken) == before


def files_of(folder: Path) -> list[Path]:
    """The files of a folder, except those that SQLite makes while a store is read."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal")))


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a server's folder, a store, and wrong files."""
    folder = tmp_path_factory.mktemp("mistaken")
    assert undertone("init", folder / "home").returncode == 0
    store = ("--devices", "100", "--slots", "1", "--rounds", "0.25,0.25,0.25", "--epsilon", "8")
    assert undertone("simulate", *store, "--store", folder / "a.sqlite").returncode == 0
    (folder / "folder").mkdir()
    (folder / "below.csv").write_text("time,h1\n2026-01-01 00:00,-5\n2026-01-01 00:30,7\n", encoding="utf-8")
    (folder / "bad.json").write_text('{"a": ', encoding="utf-8")
    plan = '[campaign]\nname = "a"\nsensor = "s"\nunit = "Wh"\nbound = 90\nepsilon = 1\nblocks = 9\n'
    (folder / "late.toml").write_text(plan, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("demo --broker emqx", "--broker is 'emqx', expected mosquitto, or no such option"),
        ("demo --delta .1", "--delta cannot be given where collect is reports"),
        ("demo --window 16s", "--window needs broker mosquitto, because its log shows when each device published"),
        ("fleet --ramp-up -1", "--ramp-up is -1.0, expected 0 to 86400 seconds"),
        ("certify --mechanism hybrid --epsilon 99", "--epsilon is '99', expected a number from 0.05 to 8"),
        (
            "release pak --epsilon 99 --bound 9 --input a.csv --output b.csv",
            "--epsilon is '99', expected a number from",
        ),
        (
            "campaign create home a --sensor a --unit W --bound 9 --epsilon 99",
            "campaign.epsilon is '99', expected a number",
        ),
    ],
)
def test_an_error_names_an_option_with_its_dashes(tmp_path: Path, words: str, sentence: str) -> None:
    assert undertone("init", tmp_path / "home").returncode == 0
    done = undertone(*(str(tmp_path / "home") if word == "home" else word for word in words.split()))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {sentence}")


@pytest.mark.parametrize("words", ["demo", "simulate"])
def test_a_picture_in_a_missing_folder_is_refused_before_anything_runs(tmp_path: Path, words: str) -> None:
    done = undertone(*words.split(), "--png", tmp_path / "none" / "a.png")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: --png is '{tmp_path}/none/a.png', expected a file in a folder that exists\n"
