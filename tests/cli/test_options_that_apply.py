"""Options are tried in uses of their command in which they do not apply: each is refused by one sentence.

The commands and their options come from the command line itself. `MODES` says in which uses of a command an option does
not apply. `EVERYWHERE` lists the options that apply in each use of their command. The tests fail for an option that is
in neither.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from support.command import undertone
from undertone.app import app
from undertone_central.make import MECHANISMS

# Command -> words of one use of it -> the options that do not apply in this use.
MODES: dict[str, dict[str, str]] = {
    "campaign create": {
        "HOME c --sensor s --unit Wh --bound 9 --epsilon 1": "--devices --population --data",
        "HOME c --sensor s --unit Wh --bound 9 --epsilon 1 --collect stream": "--window --rounds --as-papers",
        "HOME c --sensor s --unit Wh --bound 9 --epsilon 1 --as-papers": "--rounds",
    },
    "campaign extend": {"HOME c --by 30d": "--until", "HOME c --until 2030-01-01": "--by"},
    "certify": {
        "--epsilon 1 --mechanism hybrid": "--table --message --signer --delta --reports --slots --fakes --bins",
        "--epsilon 1 --mechanism square-wave": "--levels",
        "--epsilon 1 --table t.json": "--mechanism --message --signer --delta --levels --bins --reports",
        "--epsilon 1 --message m.bin": "--mechanism --table --levels --bins --slots",
        "--epsilon 1 --published --reports 9": "--table --message --signer --levels --bins",
    },
    "demo": {
        "": "--delta --slew --mechanism --theta --dimension --unit",
        "--collect stream": "--window --unit --as-papers",
    },
    "experiment": {"all --output figures": "--png"},
    "fleet": {
        "--fleet f --output o": "--interval --rate --window --epsilon --micropython",
        "--rate 3": "--interval",
        "--interval 3": "--rate",
    },
    "init": {
        "new --broker mqtts://h": "--host --port --websocket-port --join-port --tls --certificates",
        "new": "--certificates",
    },
    "join revoke": {"3 --home HOME": "--all"},
    "plan": {
        "": "--unit --slot-seconds --slots --delta --slew --chains --movement --per-report",
        "--data x.csv": "--population",
        "--mechanism hybrid": "--reach",
        "--as-papers": "--mechanism --reach --campaigns --workers",
        "--collect stream": "--error --population --data --unit --slot-seconds --bound --as-papers --mechanism --reach"
        " --cohort-share --days --campaigns --workers",
        "--window 24h": "--collect --error --as-papers --query --mechanism --reach --cohort-share --days --slots"
        " --slew --chains --movement --per-report",
    },
    "query": {
        "s.sqlite": "--output",
        "s.sqlite --json": "--format",
        "s.sqlite --groups": "--group",
        "s.sqlite --since 4h": "--from --first",
        "s.sqlite --to 2026-01-01": "--last",
        "s.sqlite --every 48": "--filtered --settled",
        "s.sqlite --quantiles 0.5": "--filtered --settled --group --groups",
        "s.sqlite --by all": "--every --quantiles --filtered --newest --settled",
        "s.sqlite --total": "--against",
        "s.sqlite --losses": "--every --quantiles --filtered --newest --settled --between --days --by --total"
        " --against",
    },
    "simulate": {
        "": "--unit --slot-seconds --delta --slew --theta --dimension --late-slots",
        "--data x.csv": "--population",
        "--mechanism hybrid": "--reach",
        "--method ems": "--blocks",
        "--as-papers": "--rounds --method --query --mechanism --reach --blocks",
        "--collect stream": "--as-papers --rounds --method --query --reach --cohort-share --blocks --window",
        "--plan c.toml": "--bound --epsilon --as-papers --rounds --collect --method --query --mechanism --reach"
        " --cohort-share --blocks --window --delta --slew --theta --dimension",
    },
    "spark run": {"--home HOME --checkpoint k --once": "--seconds"},
    "web": {"s.sqlite": "--token --remote-actions --home", "--home HOME": "--remote-actions"},
}
# Options that apply in each use of their command. The three that `MODES` has, too, are named in the test.
EVERYWHERE: dict[str, str] = {
    "authority renew": "--host --json",
    "backup": "--passphrase-file --json",
    "bench": "--quick --json",
    "broker rotate": "",
    "capacity": "--homes --slot --json",
    "campaign apply": "--although-refused",
    "campaign create": "--title --sensor --unit --bound --epsilon --slot-seconds --set --collect --preview",
    "campaign delete": "",
    "campaign diff": "--json",
    "campaign extend": "--although-refused --preview",
    "campaign list": "--json",
    "campaign log": "--json",
    "campaign pause": "",
    "campaign resume": "",
    "campaign retire": "--although-waiting",
    "campaign show": "--json",
    "campaign succeed": "--set --about --although-refused --preview",
    "certify": "--epsilon --published --json",
    "demo": "--devices --slots --epsilon --seed --data --bound --png --json --output --kill-server-at"
    " --kill-device-at --collect --broker",
    # The device's own program reads its command line itself: see tests/device/test_main.py.
    "device": "",
    "devices add": "--home --campaign --group --successors --absence --json",
    "devices conflicts": "--home --campaign --json",
    "devices export": "--home --campaign --output",
    "devices forget": "--home --campaign",
    "devices list": "--home --campaign --silent --lost --json",
    "devices move": "--home --campaign --to --group",
    "devices revoke": "--home --campaign",
    "devices rotate": "--home --campaign",
    "devices show": "--home --campaign --json",
    "doctor": "--json --alert-test",
    # A study takes the options that its subject needs: some studies have no data sets, repeats or parallel parts.
    "experiment": "--data --only --repeats --quick --seed --output --workers --json",
    "export": "--campaign --format --json",
    "fleet": "--clients --slots --ramp-up --jitter --qos --kill --duplicate --delay --lie --drop-out --late"
    " --population --seed --fleet --output --json",
    "init": "--broker --audit --health --page",
    "join create": "--home --campaign --devices --expires --group --about --links --qr --json",
    "join list": "--home --campaign --json",
    "join revoke": "--home --campaign",
    "join serve": "--home --campaign --attached",
    "move": "--endpoint --json",
    "plan": "--devices --epsilon --window --json",
    "query": "--campaign --since --to --tz --losses --json",
    "readers add": "--home",
    "readers list": "--home --json",
    "readers remove": "--home",
    "readers rotate": "--home",
    "recount": "--store --campaign --first --last --json",
    # Which questions a release can answer depends on the file: see tests/central/test_job.py.
    "release query": "--range --quantile --share --json",
    "reproduce": "--output --data --repeats --quick --seed --workers",
    "restore": "--passphrase-file --json",
    "serve": "--seconds --health --apply --take-over --log-format",
    "simulate": "--devices --data --slots --seed --plan --drop-out --late --liars --chunk --workers --store --png"
    " --json",
    "spark recount": "--home --checkpoint --campaign --master --partitions --buckets --log-format",
    "spark run": "--home --checkpoint --campaign --master --files --partitions --buckets --once --log-format",
    "upgrade": "--check",
    "verify": "--ledger --store --campaign --landing --broker-window --json",
    "web": "--listen --name --attached",
    "worker": "--store --password-file --campaign --shards --ca-file --seconds --log-format",
}
# Mechanism of a release -> those of its own options that `EVERYWHERE` lists.
OWN = {
    "tops": "--theta --update --span --fanout --smoothing --smoother --consistency --monotone --as-papers",
    "pak": "--theta --span --fanout --consistency",
    "k-ary": "--horizon --fanout --monotone",
    "two-level": "--horizon --block --monotone",
    "square-root": "--horizon --delta --monotone",
    "sanitizer": "--block --share --concepts",
    **dict.fromkeys(("simple-1", "binary"), "--horizon --monotone"),
    **dict.fromkeys(("simple-2", "unbounded", "hybrid"), "--monotone"),
}
for _name in MECHANISMS:
    _needed = "--epsilon 1 --bound 9" + (" --horizon 9" if "--horizon" in OWN[_name] else "")
    _last = " --last-block" if _name == "sanitizer" else ""
    EVERYWHERE[f"release {_name}"] = f"--epsilon --bound --input --output --scale --state {OWN[_name]}"
    MODES[f"release {_name}"] = {
        f"{_needed} --input w.csv --output o.csv": "--user --ca-file --seconds --continues",
        f"{_needed} --output o.csv": "--user --ca-file --seconds",
        f"{_needed} --input w.csv --output mqtt://127.0.0.1:1/t": "--seconds --continues",
        f"{_needed} --input mqtt://127.0.0.1:1/t --output o.csv --state k": f"--column --continues --json{_last}",
    }
MODES["release tops"] |= {
    "--epsilon 1 --bound 9 --input w.csv --theta 4": "--hold-out --objective --noise --update",
    "--epsilon 1 --bound 9 --input w.csv --objective excess": "--c",
    "--epsilon 1 --bound 9 --input w.csv --update parallel": "--share",
    "--epsilon 1 --bound 9 --input w.csv --as-papers": "--objective --noise --smoothing --smoother --update",
}
MODES["release pak"]["--epsilon 1 --bound 9 --input w.csv --theta 4"] = (
    "--hold-out --delta --percentile --threshold --noise"
)
# These values are valid, so that a command can only refuse the option itself.
VALUES = {
    "--against": "7d",
    "--as-papers": "", "--bound": "9", "--by": "all", "--ca-file": "ca.crt", "--collect": "reports", "--days": "9",
    "--error": "5", "--every": "4", "--from": "2026-01-01", "--group": "north", "--host": "h", "--method": "ems",
    "--mechanism": "gaussian", "--noise": "laplace", "--objective": "excess", "--population": "phones",
    "--quantiles": "0.5", "--query": "shown", "--rounds": "1", "--share": "0.1", "--slew": "0.1", "--smoother": "mean",
    "--smoothing": "2", "--threshold": "s-p", "--unit": "kwh", "--until": "2030-01-01", "--update": "sequential",
    "--window": "24h", "--reach": "1.2", "--epsilon": "2", "--last-block": "pad",
}  # fmt: skip
OTHER_VALUES = {
    ("campaign extend", "--by"): "30d",
    ("plan", "--mechanism"): "piecewise",
    ("plan", "--query"): "slot",
    ("simulate", "--mechanism"): "piecewise",
    ("query", "--days"): "workdays",
    ("certify", "--mechanism"): "hybrid",
    ("campaign create", "--rounds"): "48,48",
    ("simulate", "--rounds"): "1,1",
    ("release tops", "--noise"): "exponential",
}


def leaves(command: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return every command that runs something, by its words."""
    if not hasattr(command, "list_commands"):
        return {" ".join(path): command}
    found: dict[str, Any] = {}
    for name in command.list_commands(None):
        found |= leaves(command.get_command(None, name), (*path, name))
    return found


def options(command: Any) -> dict[str, Any]:
    """Return a command's options except --help, by their first spelling."""
    params = {each.opts[0]: each for each in command.params if each.opts[0].startswith("-")}
    return {name: each for name, each in params.items() if name != "--help"}


COMMANDS = leaves(get_command(app))
CASES = [
    (command, mode, option)
    for command, modes in MODES.items()
    for mode, refused in modes.items()
    for option in refused.split()
]


def test_each_option_of_the_command_line_is_tried_or_applies_everywhere() -> None:
    listed = {name: set(text.split()) for name, text in EVERYWHERE.items()}
    tried: dict[str, set[str]] = {}
    for command, _, option in CASES:
        tried.setdefault(command, set()).add(option)
    assert {name: set(options(command)) for name, command in COMMANDS.items()} == {
        name: listed.get(name, set()) | tried.get(name, set()) for name in {*listed, *tried}
    }
    both = {name: listed[name] & options for name, options in tried.items() if listed[name] & options}
    # These options contradict another option in one use, and apply in all other uses.
    assert both == {"release tops": {"--update", "--smoothing", "--smoother"}}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("applies") / "home"
    assert undertone("init", folder).returncode == 0
    return folder


@pytest.mark.parametrize(("command", "mode", "option"), CASES, ids=[" ".join(case) for case in CASES])
def test_an_option_that_does_not_apply_is_refused_by_one_sentence(
    command: str, mode: str, option: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.csv").write_text("wh\n1\n2\n", encoding="utf-8")
    (tmp_path / "s.sqlite").write_bytes(b"")
    param = options(COMMANDS[command])[option]
    value = OTHER_VALUES.get((command, option), VALUES.get(option, "3"))
    words = [str(home) if word == "HOME" else word for word in mode.split()]
    before = sorted(path.name for path in tmp_path.iterdir())
    done = undertone(*command.split(), *words, option, *([] if param.is_flag else [value]))
    assert done.returncode == 2, done
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("error: ")
    named = option.removeprefix("--").replace("-", "[-_]")
    assert re.search(rf"(?<![a-z]){named}(?![a-z])", sentence), sentence
    assert sorted(path.name for path in tmp_path.iterdir()) == before
