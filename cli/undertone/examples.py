"""Examples at the end of each command's help. tests/cli/test_examples.py runs them."""

from typing import Any

# Command -> its examples, without the word `undertone` at their beginning.
EXAMPLES: dict[str, tuple[str, str]] = {
    "authority renew": ("authority renew home", "authority renew home --host meters.example.org --host 192.0.2.7"),
    "backup": ("backup home /backup/home.tar", "backup home /backup/home.tar --passphrase-file passphrase"),
    "bench": ("bench ingest --quick", "bench connections --json"),
    "broker rotate": ("broker rotate home", "broker rotate /srv/undertone"),
    "campaign apply": ("campaign apply home load load.toml", "campaign apply home load load.toml --although-refused"),
    "campaign create": (
        "campaign create home load --sensor load --unit Wh --bound 20000 --epsilon 1",
        "campaign create home heat --sensor heat --unit Wh --bound 30000 --epsilon 1/2 --set measure=counter --preview",
    ),
    "campaign delete": ("campaign delete home load", "campaign delete /srv/undertone trial"),
    "campaign diff": ("campaign diff home load load.toml", "campaign diff home load load.toml --json"),
    "campaign extend": ("campaign extend home load --by 30d --preview", "campaign extend home load --by 3w"),
    "campaign list": ("campaign list home", "campaign list home --json"),
    "campaign log": ("campaign log home load", "campaign log home load --json"),
    "campaign pause": ("campaign pause home load", "campaign pause /srv/undertone load"),
    "campaign resume": ("campaign resume home load", "campaign resume /srv/undertone load"),
    "campaign retire": ("campaign retire home load", "campaign retire /srv/undertone load"),
    "campaign show": ("campaign show home load", "campaign show home load --json"),
    "campaign succeed": (
        "campaign succeed home load load-2 --preview",
        "campaign succeed home load load-2 --set report_slots=8640",
    ),
    "capacity": ("capacity", "capacity --homes 5000 --slot 15m --json"),
    "certify": ("certify --mechanism hybrid --epsilon 1", "certify --message campaign.bin --epsilon 1 --json"),
    "demo": ("demo --devices 100 --slots 24 --png demo.png", "demo --broker mosquitto --window 16s"),
    "devices add": (
        "devices add 20 --home home --campaign load",
        "devices add 5 --home home --campaign load --group north --successors 1",
    ),
    "devices conflicts": ("devices conflicts --home home --campaign load", "devices conflicts --home home --json"),
    "devices export": (
        "devices export --home home --output devices.csv",
        "devices export --home home --campaign load --output devices.csv",
    ),
    "devices forget": ("devices forget load-007 --home home", "devices forget load-007 --home home --campaign load"),
    "devices list": ("devices list --home home --silent 2d", "devices list --home home --campaign load --json"),
    "devices move": (
        "devices move load-007 --home home --group north",
        "devices move load-007 --home home --campaign load --to load-b",
    ),
    "devices revoke": ("devices revoke load-007 --home home", "devices revoke load-007 --home home --campaign load"),
    "devices rotate": ("devices rotate load-007 --home home", "devices rotate load-007 --home home --campaign load"),
    "devices show": ("devices show load-007 --home home", "devices show load-007 --home home --json"),
    "doctor": ("doctor home", "doctor home --json"),
    "experiment": ("experiment tables-ratios", "experiment all --output out/results --quick"),
    "export": ("export home/stores/load.sqlite numbers", "export postgresql://user@host/db numbers --campaign load"),
    "fleet": (
        "fleet --fleet home/fleets/load --output load --clients 20",
        "fleet --clients 1000 --slots 10 --interval 5",
    ),
    "init": ("init home", "init home --host meters.example.org --page 0.0.0.0:8080"),
    "move": ("move home meters.example.org", "move home 192.0.2.7:8884"),
    "plan": ("plan --devices 5000 --epsilon 1", "plan --devices 20000 --epsilon 2 --window 24h"),
    "query": (
        "query home/stores/load.sqlite --newest 4",
        "query load.sqlite --since 7d --between 18:00-23:00 --days workdays --by group --total",
    ),
    "join create": (
        "join create --home home --devices 20 --qr sheet.html",
        "join create --home home --campaign power --expires 2d --links links.txt",
    ),
    "join list": ("join list --home home", "join list --home home --campaign power --json"),
    "join revoke": ("join revoke 12 13 --home home", "join revoke --all --home home --campaign power"),
    "join serve": ("join serve --home home", "join serve --home home --attached"),
    "readers add": ("readers add grafana --home home", "readers add grafana --home /srv/undertone"),
    "readers list": ("readers list --home home", "readers list --home home --json"),
    "readers remove": ("readers remove grafana --home home", "readers remove telegraf --home home"),
    "readers rotate": ("readers rotate grafana --home home", "readers rotate telegraf --home home"),
    "recount": (
        "recount /srv/landing --store load.sqlite",
        "recount /srv/landing --store postgresql://user@host/db --campaign load",
    ),
    "release binary": (
        "release binary --epsilon 1 --bound 12000 --horizon 4096 --input wh.csv --column wh --output binary.csv",
        "release binary --epsilon 1/2 --bound 12000 --horizon 4096 --input wh.csv --output mqtt://broker.example.org/binary",
    ),
    "release hybrid": (
        "release hybrid --epsilon 1 --bound 12000 --input wh.csv --column wh --output hybrid.csv",
        "release hybrid --epsilon 1/2 --bound 12000 --input wh.csv --output mqtt://broker.example.org/hybrid",
    ),
    "release k-ary": (
        "release k-ary --epsilon 1 --bound 12000 --horizon 4096 --input wh.csv --column wh --output k-ary.csv",
        "release k-ary --epsilon 1/2 --bound 12000 --horizon 4096 --input wh.csv --output mqtt://broker.example.org/k-ary",
    ),
    "release pak": (
        "release pak --epsilon 1 --bound 12000 --input wh.csv --column wh --output pak.csv",
        "release pak --epsilon 1/2 --bound 12000 --input wh.csv --output mqtt://broker.example.org/pak",
    ),
    "release sanitizer": (
        "release sanitizer --epsilon 1 --bound 12000 --block 1000 --input wh.csv --column wh --output sanitizer.csv",
        "release sanitizer --epsilon 1/2 --bound 12000 --block 1000 --input wh.csv --output mqtt://broker.example.org/sanitizer",
    ),
    "release simple-1": (
        "release simple-1 --epsilon 1 --bound 12000 --horizon 4096 --input wh.csv --column wh --output simple-1.csv",
        "release simple-1 --epsilon 1/2 --bound 12000 --horizon 4096 --input wh.csv --output mqtt://broker.example.org/simple-1",
    ),
    "release simple-2": (
        "release simple-2 --epsilon 1 --bound 12000 --input wh.csv --column wh --output simple-2.csv",
        "release simple-2 --epsilon 1/2 --bound 12000 --input wh.csv --output mqtt://broker.example.org/simple-2",
    ),
    "release square-root": (
        "release square-root --epsilon 1 --bound 500 --horizon 4096 --input wh.csv --column wh --output root.csv",
        "release square-root --epsilon 1/2 --bound 500 --horizon 4096 --input wh.csv --output mqtt://broker.example.org/root",
    ),
    "release tops": (
        "release tops --epsilon 1 --bound 12000 --input wh.csv --column wh --output tops.csv",
        "release tops --epsilon 1/2 --bound 12000 --input wh.csv --output mqtt://broker.example.org/tops",
    ),
    "release two-level": (
        "release two-level --epsilon 1 --bound 12000 --horizon 4096 --input wh.csv --column wh --output two-level.csv",
        "release two-level --epsilon 1/2 --bound 12000 --horizon 4096 --input wh.csv --output mqtt://broker.example.org/two-level",
    ),
    "release unbounded": (
        "release unbounded --epsilon 1 --bound 12000 --input wh.csv --column wh --output unbounded.csv",
        "release unbounded --epsilon 1/2 --bound 12000 --input wh.csv --output mqtt://broker.example.org/unbounded",
    ),
    "release query": (
        "release query private.csv --range 70000:80000",
        "release query items.csv --quantile .5 --quantile .95",
    ),
    "reproduce": (
        "reproduce chan --output out/chan",
        "reproduce tops --output out/tops --repeats 100 --workers 2",
    ),
    "restore": (
        "restore /backup/home.tar home",
        "restore /backup/home.tar home --passphrase-file passphrase",
    ),
    "serve": ("serve home", "serve home --log-format json"),
    "simulate": (
        "simulate --devices 5000 --slots 48 --store day.sqlite",
        "simulate --plan home/campaigns/load.toml --data readings.parquet --json",
    ),
    "spark recount": (
        "spark recount --home home --campaign load --checkpoint /srv/checkpoint-2",
        "spark recount --home home --campaign load --checkpoint /srv/checkpoint-2 --master 'local[*]'",
    ),
    "spark run": (
        "spark run --home home --campaign load --checkpoint /srv/checkpoint",
        "spark run --home home --campaign load --checkpoint /srv/checkpoint --once",
    ),
    "upgrade": ("upgrade home --check", "upgrade undertone.sqlite"),
    "verify": (
        "verify --ledger gateway.ledger --store undertone.sqlite",
        "verify --ledger a.ledger --ledger b.ledger --store postgresql://user@host/db --campaign load",
    ),
    "web": ("web day.sqlite", "web --home home --listen 0.0.0.0:8080"),
    "worker": (
        "worker --store postgresql://user@host/db --password-file aggregator.password",
        "worker --store postgresql://user@host/db --password-file aggregator.password --shards auto",
    ),
}


def with_examples(name: str, command: Any) -> Any:
    """Return a command or group of commands whose help ends with its examples, each on a line of its own."""
    for part, child in getattr(command, "commands", {}).items():
        with_examples(f"{name} {part}", child)
    if name in EXAMPLES:
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  undertone {example}" for example in EXAMPLES[name])
    return command
