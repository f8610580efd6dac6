import json
import math

import pytest

from undertone.__main__ import main


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--devices", "1"], "devices is 1, expected an integer from 2"),
        (["--epsilon", "99"], "expected a number from 0.05 to 8"),
        (["--data", "nowhere.npz"], "nowhere.npz"),
        (["--mechanism", "nonsense"], "mechanism cannot be given where collect is reports"),
        (["--mechanism", "hybrid"], "mechanism cannot be given where collect is reports"),
        (["--theta", "500", "--delta", "0.1"], "--delta, --theta cannot be given where collect is reports"),
        (["--collect", "stream", "--mechanism", "hybrid"], "expected one of gaussian, one-bit, direct"),
        (["--collect", "stream", "--window", "16s"], "window cannot be given where collect is stream"),
        (["--collect", "turns"], "collect is 'turns', expected one of reports, stream"),
        (["--unit", "kwh"], "unit is 'kwh', expected none"),
        (["--data", "readings.txt"], "expected .npz, .csv or .parquet"),
    ],
)
def test_bad_input_is_one_sentence(options, sentence, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["undertone", "demo", *options])
    assert main() == 2
    assert sentence in capsys.readouterr().err


def test_without_mosquitto_the_way_to_get_one(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", str(tmp_path / "nothing"))
    monkeypatch.setattr("sys.argv", ["undertone", "demo", "--broker", "mosquitto"])
    assert main() == 2
    assert "UNDERTONE_MOSQUITTO" in capsys.readouterr().err


@pytest.mark.slow
def test_real_households_with_everything_killed_on_the_way(
    undertone_data, mosquitto_binary, monkeypatch, capsys, tmp_path
):
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    options = ["--devices", "200", "--slots", "24", "--epsilon", "4"]
    options += ["--data", str(undertone_data / "edrp_scotland_622x4416_halfhour_wh.npz")]
    options += ["--kill-server-at", "8", "--kill-device-at", "5"]
    options += ["--png", str(tmp_path / "demo.png"), "--json"]
    monkeypatch.setattr("sys.argv", ["undertone", "demo", *options])
    assert main() == 0
    printed = capsys.readouterr()
    assert "nothing is unexplained" in " ".join(printed.err.split())
    told = json.loads(printed.out)
    assert told["certificate"] <= math.exp(4)
    assert len(told["slots"]) == 24
    accounts = told["accounting"]
    assert accounts["sent"] == accounts["acknowledged"] == accounts["counted"]
    # In all 24 slots, the error is within 6 standard errors.
    for slot in told["slots"]:
        assert abs(slot["truncated_mean"] - slot["truth_truncated"]) < 6 * slot["truncated_se"]
