import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.server import FIRST, campaign, two_epochs
from undertone_aggregator.collect import store as stores
from undertone_aggregator.collect.epochs import Epoch, threshold_to_json
from undertone_aggregator.collect.partial import Key
from undertone_aggregator.collect.store import Batch
from undertone_aggregator.design import square_wave
from undertone_aggregator.estimate.query import open_store
from undertone_aggregator.threshold import Threshold
from undertone_shared import report
from undertone_shared.cohort import WHOLE
from undertone_shared.errors import Invalid
from undertone_shared.issue import build
from undertone_shared.scalar import Cohort
from undertone_simulator.vectorised import GivenWords, histogram

EDGES = (0, 5, 10, 20, 40, 60, 80, 100, 150, 200, 300, 500, 1001)
CHOSEN = Threshold(
    500, 450, 600, 3.0, 1.0, 9.0, np.array([0.5, 0.4, 0.1]), (0, 100, 500, 1001), "robust", ["few reports"]
)


def draw(mechanism: Any, readings: np.ndarray, theta: int, chance: np.random.Generator) -> Any:  # type: ignore[type-arg]
    words = GivenWords(chance.integers(0, 2**32, (len(readings), 24), dtype=np.uint32))
    return histogram(mechanism, np.minimum(readings, theta), theta, words)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of one threshold round and three days of four slots in the report phase, exponential readings."""
    path = tmp_path_factory.mktemp("query") / "s.sqlite"
    chance = np.random.default_rng(8)
    shape = campaign()
    rounds = build(
        name="meters",
        sensor="load",
        unit="Wh",
        measure="sum",
        offset=0,
        bound=1000,
        slot_seconds=1,
        cycle=4,
        epoch=FIRST,
        last_slot=shape.last_slot,
        default=0,
        cohort=Cohort(shape.cohort.seed, WHOLE, square_wave(4, EDGES)),
        report=None,
    )
    second = two_epochs()[1].campaign
    rule = second.report
    assert rule is not None
    batch = Batch()
    for slot in range(FIRST, FIRST + 4):
        key = Key("meters", rounds.fingerprint, report.COHORT, "all", slot)
        batch.partial = batch.partial.merge(
            type(batch.partial)(
                {key: draw(rounds.cohort.mechanism, chance.exponential(100, 2000).astype(int), 1000, chance)}
            )
        )
    for slot in range(FIRST + 100, FIRST + 112):
        for group, size in (("north", 300), ("south", 500)):
            key = Key("meters", second.fingerprint, report.REPORT, group, slot)
            counts = draw(rule.mechanism, chance.exponential(100, size).astype(int), rule.theta, chance)
            batch.partial = batch.partial.merge(type(batch.partial)({key: counts}))
    batch.outcomes["counted"] = batch.partial.reports
    batch.outcomes["duplicate"] = 3
    with stores.open_store(path) as made:
        made.set_meta({"campaign": "meters", "epsilon": "4"})
        made.add_epoch(Epoch(rounds, FIRST - 10))
        made.add_epoch(Epoch(second, FIRST + 90, threshold_to_json(CHOSEN)))
        made.commit("0of1", batch)
    return path


def test_results_say_everything(store: Path) -> None:
    with open_store(store) as results:
        assert results.theta == 500
        assert results.certificate <= np.exp(4)
        assert "event-level" in results.guarantee
        assert "ε = 16" in results.guarantee
        assert results.outcomes() == {"counted": 8000 + 12 * 800, "duplicate": 3, "received": 8003 + 12 * 800}
        estimates = results.estimates()
        assert [one.slot - FIRST for one in estimates] == [0, 1, 2, 3, *range(100, 112)]
        for one in estimates[4:]:
            assert one.reports == 800
            assert one.standard_error is not None
            assert one.low_raw is not None
            assert abs(one.estimate - 100) < 5 * np.hypot(one.standard_error, 100 / 800**0.5)
        assert results.warnings(estimates) == ["few reports"]
        assert len(results.estimates(FIRST + 100, FIRST + 101, None)) == 6
        columns = results.arrays(FIRST + 100)
        assert columns["estimate"].shape == (12,)
        assert np.isfinite(columns["standard_error"]).all()


def test_ranges_and_quantiles(store: Path) -> None:
    with open_store(store) as results:
        days = results.ranges(4)
        assert [day.slots for day in days] == [4, 4, 4]
        assert all(day.standard_error < 8 for day in days)
        median, tail = results.quantiles((0.5, 0.95), every=8, last=FIRST + 10)
        assert (median.cohort, median.reports) == (8000, 0)
        # 8000 reports at ε = 4: the median of an exponential of mean 100 is 69, its 95 % quantile 300.
        assert 60 < median.value < 78
        assert 240 < tail.value < 370
        assert median.low <= median.value <= median.high
        with pytest.raises(Invalid, match=r"the share of a quantile is 1.5"):
            results.quantiles((1.5,))


def test_a_frame_for_pandas(store: Path) -> None:
    pytest.importorskip("pandas")
    with open_store(store) as results:
        frame = results.frame(groups=["north", "south"])
    assert sorted(set(frame["group"])) == ["north", "south"]
    assert len(frame) == 24


def test_the_public_module_imports_nothing_until_asked(store: Path) -> None:
    code = (
        "import sys, undertone; assert not [m for m in sys.modules if 'numpy' in m or 'aggregator' in m];"
        f"r = undertone.open_store({str(store)!r}); print(r.theta, undertone.Estimate.__name__, dir(undertone)[-1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:2] == ["500", "Estimate"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        __import__("undertone").nothing  # noqa: B018


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "undertone", "query", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_the_command_in_all_its_forms(store: Path, tmp_path: Path) -> None:
    table = command(store, "--newest", 2)
    assert table.returncode == 0, table.stderr
    assert "event-level" in table.stdout
    assert "warning: few reports" in table.stdout
    found = json.loads(command(store, "--json", "--first", FIRST + 100, "--group", "all").stdout)
    assert found["theta"] == 500
    assert len(found["slots"]) == 12
    assert found["slots"][0]["reports"] == 800
    assert found["outcomes"]["duplicate"] == 3
    days = json.loads(command(store, "--json", "--every", 4, "--group", "all").stdout)["ranges"]
    assert [day["slots"] for day in days] == [4, 4, 4]
    parquet = tmp_path / "x.parquet"
    lines = command(store, "--csv", "--newest", 1, "--parquet", parquet).stdout.splitlines()
    assert lines[0].startswith("slot,start,group,kind,reports")
    assert len(lines) == 4
    pq = pytest.importorskip("pyarrow.parquet")
    read = pq.read_table(parquet)
    assert read.num_rows == 3
    assert json.loads(read.schema.metadata[b"undertone"])["epsilon"] == 4.0


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["/nowhere/s.sqlite"], "there is no store at /nowhere/s.sqlite"),
        (["STORE", "--json", "--csv"], "--json and --csv exclude each other"),
        (["STORE", "--quantiles", "half"], "--quantiles is 'half', expected numbers between 0 and 1"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(store: Path, arguments: list[str], part: str) -> None:
    done = command(*[store if one == "STORE" else one for one in arguments])
    assert done.returncode == 2
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_without_an_epoch_says_so(tmp_path: Path) -> None:
    stores.open_store(tmp_path / "s.sqlite").close()
    with pytest.raises(Invalid, match="has no epoch yet"):
        open_store(tmp_path / "s.sqlite")
