import hashlib
import json
from collections import Counter

import pytest

from support import landed
from support.list_intake import ListIntake
from support.server import PREFIX, delivery
from undertone.__main__ import main
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.ingest.landing import Landing
from undertone_aggregator.settings.landing_plan import SPARK, LandingPlan
from undertone_aggregator.store.store import Batch, open_store
from undertone_operate.examine.recount import recount
from undertone_shared.report import COHORT, pack
from undertone_simulator.wire.ledger import FleetLedger

ONE = pack(COHORT, b"abcdefgh", 5, (3,), 1)
TWO = pack(COHORT, b"abcdefgh", 6, (3,), 2)


@pytest.fixture
def files(tmp_path):
    """A ledger of two reports, of which one is acknowledged, and a store that has counted one report."""
    ledger = FleetLedger(tmp_path / "ledger")
    ledger.sent("a", ONE)
    ledger.acked("a", ONE)
    ledger.sent("a", TWO)
    ledger.close()
    batch = Batch(outcomes=Counter(counted=1), audit=[("a", hashlib.sha256(ONE).digest()[:8], "counted")])
    batch.partial = Partial()
    batch.partial.add(Key("c", b"abcd", COHORT, "all", 5), 3, 8)
    with open_store(tmp_path / "store") as store:
        store.commit("0of1", batch)
    return tmp_path


@pytest.fixture
def verify(files, monkeypatch, capsys):
    def call(*options):
        command = ["undertone", "verify", "--ledger", str(files / "ledger"), "--store", str(files / "store")]
        monkeypatch.setattr("sys.argv", [*command, *options])
        code = main()
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def lose_the_second(files):
    ledger = FleetLedger(files / "ledger")
    ledger.lost("a", TWO, "killed")
    ledger.close()


def test_accounts_that_do_not_add_up_exit_with_1(verify):
    code, out, _ = verify()
    assert code == 1
    assert "still under way: a, report" in " ".join(out.split())
    assert "Unexplained: 1 still under way." in out


def test_accounts_that_add_up_exit_with_0(verify, files):
    lose_the_second(files)
    code, out, _ = verify()
    assert code == 0
    assert "nothing is unexplained" in out
    assert "lost: killed" in out


def test_json(verify, files):
    lose_the_second(files)
    code, out, _ = verify("--json")
    assert code == 0
    told = json.loads(out)
    assert told["reports"] == {"sent": 2, "acknowledged": 1, "counted": 1, "rejected": {}, "lost": {"killed": 1}}
    assert told["deliveries"]["received"] == 1


@pytest.mark.parametrize(("option", "sentence"), [("--store", "no store"), ("--ledger", "No such file")])
def test_missing_files_exit_with_2(verify, option, sentence):
    code, _, err = verify(option, "nowhere")
    assert code == 2
    assert sentence in err


def test_another_file_is_not_a_ledger(verify, files):
    (files / "other").write_text("hello\nworld\n", encoding="utf-8")
    code, _, err = verify("--ledger", str(files / "other"))
    assert code == 2
    assert "is not a ledger" in err


def test_where_spark_counts_the_audit_is_in_the_landed_files(tmp_path, monkeypatch, capsys):
    """Spark counted into the store, which has no audit. The landed files name each report and its outcome."""
    epoch, slot = landed.EPOCHS[1], landed.START
    plan = IngestPlan(
        PREFIX, "meters", 1, cells_of, audit=True, landing=LandingPlan(str(tmp_path / "landing"), 0.0, 7, SPARK)
    )
    ledger = FleetLedger(tmp_path / "ledger")
    made = [delivery(epoch.campaign, f"d{number}", slot, number % 3) for number in range(9)]
    for number, (_, payload) in enumerate(made):
        ledger.sent(f"d{number}", payload)
        ledger.acked(f"d{number}", payload)
    ledger.close()
    with open_store(tmp_path / "beside", campaign="meters") as beside:
        landed.bind(beside)
        came = [Delivery(*sent, False) for sent in [*made, made[0]]]
        ingest = Ingest(plan, beside, ListIntake([]), clock=lambda: slot + 5)
        assert ingest.commit(came)
        ingest._gather(Landing.gather)
    with open_store(tmp_path / "store", campaign="meters") as store:
        landed.bind(store)
        again = recount(tmp_path / "landing", store.epochs())
        store.commit("spark", Batch(partial=again.partial, outcomes=again.outcomes))
    command = ["undertone", "verify", "--ledger", str(tmp_path / "ledger"), "--store", str(tmp_path / "store")]
    monkeypatch.setattr("sys.argv", command)
    assert main() == 2
    assert "has no audit" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", [*command, "--landing", str(tmp_path / "landing"), "--json"])
    assert main() == 0
    told = json.loads(capsys.readouterr().out)
    assert told["reports"] == {"sent": 9, "acknowledged": 9, "counted": 9, "rejected": {}, "lost": {}}
    assert told["deliveries"]["duplicates"] == 1
