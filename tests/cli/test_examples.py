"""The examples of the commands' help are run here, in one folder. `NOT_RUN` says why the other examples are not."""

import datetime
import os
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command import undertone
from undertone.examples import EXAMPLES

# Words of examples that name places -> the places in this test's folder that replace them.
PLACES = {
    "/srv/undertone": "srv",
    "/backup/home.tar": "home.tar",
    "load.sqlite": "home/stores/load.sqlite",
    "undertone.sqlite": "home/stores/load.sqlite",
}
# These lines are run in this order. A line that begins with + prepares the next lines and is no example. What follows
# `as` replaces words of the line.
STORY = """
init home
init home --host meters.example.org --page 0.0.0.0:8080 as home=public
capacity --homes 5000 --slot 15m --json
campaign create home heat --sensor heat --unit Wh --bound 30000 --epsilon 1/2 --set measure=counter --preview
campaign create home load --sensor load --unit Wh --bound 20000 --epsilon 1
+simulate --plan home/campaigns/load.toml --data readings.parquet --devices 2 --slots 2 --json
+simulate --plan home/campaigns/load.toml --devices 300 --slots 48 --store home/stores/load.sqlite
devices add 20 --home home --campaign load
+devices add 1 --home home --campaign load --group south
devices add 5 --home home --campaign load --group north --successors 1
devices list --home home --silent 2d
devices list --home home --campaign load --json
devices show load-007 --home home
devices show load-007 --home home --json
devices export --home home --output devices.csv
+devices export --home home --output other.csv
devices export --home home --campaign load --output devices.csv as devices.csv=load.csv
devices conflicts --home home --campaign load
devices conflicts --home home --json
devices move load-007 --home home --group north
+campaign create home load-b --sensor load --unit Wh --bound 20000 --epsilon 1
devices move load-007 --home home --campaign load --to load-b as load-007=load-009
devices rotate load-007 --home home
devices rotate load-007 --home home --campaign load
devices revoke load-007 --home home
devices forget load-007 --home home
devices revoke load-007 --home home --campaign load as load-007=load-008
devices forget load-007 --home home --campaign load as load-007=load-008
readers add grafana --home home
readers rotate grafana --home home
+readers add telegraf --home home
readers rotate telegraf --home home
readers list --home home
readers list --home home --json
readers remove grafana --home home
readers remove telegraf --home home
broker rotate home
authority renew home as home=public
authority renew home --host meters.example.org --host 192.0.2.7 as home=public
doctor home
doctor home --json
campaign list home
campaign list home --json
campaign show home load
campaign show home load --json
campaign log home load
campaign log home load --json
query home/stores/load.sqlite --newest 4
query load.sqlite --since 7d --between 18:00-23:00 --days workdays --by group --total
export home/stores/load.sqlite numbers
backup home /backup/home.tar
restore /backup/home.tar home as home=restored
+doctor home
backup home /backup/home.tar --passphrase-file passphrase as /backup/home.tar=sealed.tar
restore /backup/home.tar home --passphrase-file passphrase as /backup/home.tar=sealed.tar home=opened
upgrade home --check
upgrade undertone.sqlite
campaign diff home load load.toml
campaign diff home load load.toml --json
campaign apply home load load.toml
campaign apply home load load.toml --although-refused as load.toml=later.toml
campaign extend home load --by 30d --preview
campaign extend home load --by 3w
campaign succeed home load load-2 --preview
campaign succeed home load load-2 --set report_slots=8640
campaign pause home load
campaign resume home load
+campaign create home unused --sensor load --unit Wh --bound 20000 --epsilon 1
campaign delete home load as load=unused
+init srv --host old.example.org
+campaign create srv load --sensor load --unit Wh --bound 20000 --epsilon 1
+simulate --plan srv/campaigns/load.toml --devices 9 --slots 2 --store srv/stores/load.sqlite
campaign pause /srv/undertone load
campaign resume /srv/undertone load
campaign retire /srv/undertone load
campaign retire home load as home=srv
move home meters.example.org as home=srv
move home 192.0.2.7:8884 as home=srv
+campaign create srv trial --sensor load --unit Wh --bound 20000 --epsilon 1
campaign delete /srv/undertone trial
broker rotate /srv/undertone
readers add grafana --home /srv/undertone
plan --devices 5000 --epsilon 1
certify --mechanism hybrid --epsilon 1
+init joined --tls --join-port 8444
+campaign create joined power --sensor power --unit Wh --bound 20000 --epsilon 1
join create --home home --devices 20 --qr sheet.html as home=joined
join create --home home --campaign power --expires 2d --links links.txt as home=joined
join list --home home as home=joined
join list --home home --campaign power --json as home=joined
join revoke 12 13 --home home as home=joined
join revoke --all --home home --campaign power as home=joined
release binary --epsilon 1 --bound 12000 --horizon 4096 --input wh.csv --column wh --output binary.csv
release hybrid --epsilon 1 --bound 12000 --input wh.csv --column wh --output hybrid.csv
release k-ary --epsilon 1 --bound 12000 --horizon 4096 --input wh.csv --column wh --output k-ary.csv
release pak --epsilon 1 --bound 12000 --input wh.csv --column wh --output pak.csv as wh.csv=long.csv
release sanitizer --epsilon 1 --bound 12000 --block 1000 --input wh.csv --column wh --output sanitizer.csv
release simple-1 --epsilon 1 --bound 12000 --horizon 4096 --input wh.csv --column wh --output simple-1.csv
release simple-2 --epsilon 1 --bound 12000 --input wh.csv --column wh --output simple-2.csv
release square-root --epsilon 1 --bound 500 --horizon 4096 --input wh.csv --column wh --output root.csv
release tops --epsilon 1 --bound 12000 --input wh.csv --column wh --output tops.csv as wh.csv=long.csv
release two-level --epsilon 1 --bound 12000 --horizon 4096 --input wh.csv --column wh --output two-level.csv
release unbounded --epsilon 1 --bound 12000 --input wh.csv --column wh --output unbounded.csv
+release hybrid --epsilon 1 --bound 12000 --input long.csv --output private.csv
release query private.csv --range 70000:80000
release query items.csv --quantile .5 --quantile .95 as items.csv=sanitizer.csv
release binary --epsilon 1/2 --bound 12000 --horizon 4096 --input wh.csv --output mqtt://broker.example.org/binary
release hybrid --epsilon 1/2 --bound 12000 --input wh.csv --output mqtt://broker.example.org/hybrid
release k-ary --epsilon 1/2 --bound 12000 --horizon 4096 --input wh.csv --output mqtt://broker.example.org/k-ary
release pak --epsilon 1/2 --bound 12000 --input wh.csv --output mqtt://broker.example.org/pak as wh.csv=long.csv
release sanitizer --epsilon 1/2 --bound 12000 --block 1000 --input wh.csv --output mqtt://broker.example.org/sanitizer
release simple-1 --epsilon 1/2 --bound 12000 --horizon 4096 --input wh.csv --output mqtt://broker.example.org/simple-1
release simple-2 --epsilon 1/2 --bound 12000 --input wh.csv --output mqtt://broker.example.org/simple-2
release square-root --epsilon 1/2 --bound 500 --horizon 4096 --input wh.csv --output mqtt://broker.example.org/root
release tops --epsilon 1/2 --bound 12000 --input wh.csv --output mqtt://broker.example.org/tops as wh.csv=long.csv
release two-level --epsilon 1/2 --bound 12000 --horizon 4096 --input wh.csv --output mqtt://broker.example.org/two-level
release unbounded --epsilon 1/2 --bound 12000 --input wh.csv --output mqtt://broker.example.org/unbounded
"""
# Why the other examples are not run here -> how these examples begin.
NOT_RUN = {
    "it measures for a minute or more": ("bench ", "experiment ", "reproduce "),
    "the story runs the same measurement with other options": ("capacity",),
    "it starts a server, a broker or hundreds of clients": ("demo ", "fleet "),
    "it runs until it is stopped": ("serve ", "web ", "join serve "),
    "it needs a PostgreSQL server": ("export postgresql:", "worker "),
    "it needs Java and Spark": ("spark ",),
    "it needs files that a server landed": ("recount ",),
    "it needs the ledger of devices that ran": ("verify ",),
    "it needs the message that a broker retains": ("certify --message ",),
    "it simulates the many slots of a whole campaign; the story runs it with few": ("simulate ",),
    "it takes two seconds of processor time": ("plan --devices 20000 --epsilon 2 --window 24h",),
}
# The command whose exit code 1 says that there is a difference.
DIFFERENCE = "campaign diff "
PLAN = """
[campaign]
version = {version}
name = "load"
sensor = "load"
unit = "Wh"
bound = 20000
epsilon = "1"
slot_seconds = 1800
collect = "reports"
groups = "fleets/load/groups.csv"
min_reports = {least}
"""


def steps() -> list[tuple[str, bool, dict[str, str]]]:
    """For each line of the story: (the command line, whether it is an example, word -> the word that replaces it)."""
    lines = [line.partition(" as ") for line in STORY.strip().splitlines()]
    return [
        (line.lstrip("+"), not line.startswith("+"), PLACES | dict(pair.split("=") for pair in renamed.split()))
        for line, _, renamed in lines
    ]


def test_every_example_is_run_or_the_source_says_why_not() -> None:
    run = [line for line, is_example, _ in steps() if is_example]
    examples = [example for pair in EXAMPLES.values() for example in pair]
    assert sorted(set(run) - set(examples)) == []
    beginnings = tuple(beginning for those in NOT_RUN.values() for beginning in those)
    assert [example for example in examples if example not in run and not example.startswith(beginnings)] == []
    left = [example for example in examples if example not in run]
    assert [each for each in beginnings if not any(example.startswith(each) for example in left)] == []


@pytest.mark.slow
@pytest.mark.long
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    numbers = np.random.default_rng(1)
    times = [datetime.datetime(2026, 1, 5) + datetime.timedelta(minutes=30 * i) for i in range(96)]
    homes = {"household": ["a"] * 96 + ["b"] * 96, "time": times * 2, "wh": numbers.integers(0, 900, 192)}
    pq.write_table(pa.table(homes), "readings.parquet")
    for name, rows in (("wh.csv", 4096), ("long.csv", 80_001)):
        text = "".join(f"{value}\n" for value in numbers.integers(0, 900, rows))
        Path(name).write_text(f"wh\n{text}", encoding="utf-8")
    for version, name in enumerate(("load.toml", "later.toml"), 1):
        Path(name).write_text(PLAN.format(version=version, least=40 + version), encoding="utf-8")
    Path("passphrase").write_text("twelve characters", encoding="utf-8")
    os.chmod("passphrase", 0o600)
    for line, _, places in steps():
        done = undertone(*(_place(word, places) for word in shlex.split(line)))
        assert done.returncode == line.startswith(DIFFERENCE), f"{line}: {done.stderr}"


def _place(word: str, places: dict[str, str]) -> str:
    """Return the word that replaces ``word`` in a command line.

    A file takes the place of a broker that does not exist.
    """
    return f"half-{word.rpartition('/')[2]}.csv" if word.startswith("mqtt://") else places.get(word, word)
