"""`undertone aggregate`: broker, store, ingest and coordinator, put together and taken apart."""

import csv
import json
import secrets
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from undertone_aggregator.collect.ingest import Failpoint, IngestPlan, nowhere
from undertone_aggregator.collect.store import Store, StoreError, open_store
from undertone_aggregator.collect.workers import ProcessWorker, ThreadWorker, Worker
from undertone_aggregator.collection import cells_of
from undertone_aggregator.config import CampaignPlan, Config, StreamPlan
from undertone_aggregator.journal import Journal
from undertone_aggregator.source import Source, open_source
from undertone_shared.cohort import SEED_BYTES
from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name

_TICK_SECONDS = 0.1
# What a store's numbers depend on: it cannot change under them.
_FIXED = ("name", "sensor", "unit", "measure", "offset", "bound", "slot_seconds", "cycle")
_LARGEST_GROUPS = 1 << 28


def serve(
    config: Config,
    stop: threading.Event,
    journal: Journal,
    *,
    clock: Callable[[], float] = time.time,
    failpoint: Failpoint = nowhere,
) -> None:
    """Run until ``stop`` is set; then everything read is committed and acknowledged, and a managed broker stopped.

    ``failpoint``: see `Ingest`. Raises Invalid for a store of another campaign, bad files, or a broker that does not
    start.
    """
    plan = config.campaign
    groups = read_groups(config.path(plan.groups)) if plan.groups is not None else None
    with open_source(config, journal) as source, open_store(config.store_url, campaign=plan.name) as store:
        seed = open_campaign(store, plan, config.stream)
        ingest_plan = IngestPlan(
            config.broker.prefix,
            plan.name,
            plan.slot_seconds,
            cells_of,
            workers=config.server.workers,
            batch=config.server.batch,
            batch_seconds=config.server.batch_milliseconds / 1000,
            audit=config.store.audit,
            groups=groups,
        )

        def say(sentence: str) -> None:
            journal.say_once("ingest", sentence)

        hung_up = _hang_up()

        ingest_plan = source.take_over(store, ingest_plan, say, clock, stop)
        kind = ThreadWorker if ingest_plan.workers == 1 else ProcessWorker
        workers: list[Worker] = []
        outlet = source.outlet(ingest_plan, say)
        try:
            for number in range(ingest_plan.workers):
                own = replace(ingest_plan, worker=number)
                workers.append(kind(own, store.url, source.open_intake, say, clock, failpoint))
            outlet.start()
            # The workers take in reports while the numerics load.
            from undertone_aggregator.coordinator import Coordinator

            # Devices are told to report only once the broker keeps reports for us.
            while not stop.wait(_TICK_SECONDS) and not all(worker.ready for worker in workers):
                for worker in workers:
                    worker.check()
            coordinator = Coordinator(config, seed, store, outlet, journal, clock)
            while not stop.wait(_TICK_SECONDS):
                for worker in workers:
                    worker.check()
                if hung_up.is_set():
                    hung_up.clear()
                    _reload(source, journal)
                try:
                    coordinator.note_dropped(outlet.dropped)
                    coordinator.tick(int(clock()))
                except StoreError as wrong:
                    journal.say_once("store", f"the store cannot be written, trying again: {wrong}")
        finally:
            for worker in workers:
                worker.stop()
            outlet.stop()
        for worker in workers:
            worker.check()
        coordinator.status(int(clock()))


def _hang_up() -> threading.Event:
    """Set at each SIGHUP from now on."""
    event = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, lambda *_: event.set())
    return event


def _reload(source: Source, journal: Journal) -> None:
    try:
        source.reload()
        journal.say("reload", "passwords and certificates were read again")
    except (Invalid, OSError) as wrong:
        journal.say("reload", f"nothing was read again: {wrong}")


def open_campaign(store: Store, plan: CampaignPlan, stream: StreamPlan | None = None) -> bytes:
    """Bind a new store to the plan, or check that an old one is the plan's; the cohort seed.

    Raises Invalid naming the fact in which they differ.
    """
    facts = {name: getattr(plan, name) for name in _FIXED}
    facts["kind"] = "report" if stream is None else "stream"
    with store.transaction():
        meta = store.meta()
        # What readers of the store need, and an operator may change.
        store.set_meta(
            {"time_zone": plan.time_zone, "holidays": plan.holidays or "", "settle_slots": str(plan.settle_slots)}
        )
        if "facts" not in meta:
            seed = plan.cohort_seed or secrets.token_bytes(SEED_BYTES)
            store.set_meta({"campaign": plan.name, "facts": json.dumps(facts), "cohort_seed": seed.hex()})
            store.set_meta({"epsilon": str(plan.epsilon), "delta": "" if stream is None else str(stream.delta)})
            return seed
        # Devices cap it by their own policy; the store keeps the largest for what is said about the campaign.
        store.set_meta({"epsilon": str(max(plan.epsilon, Fraction(meta["epsilon"])))})
    kept = json.loads(meta["facts"])
    for name, value in facts.items():
        if kept.get(name) != value:
            raise Invalid(
                f"campaign.{name} is {value!r}, but the store {store.url} holds a campaign with {kept.get(name)!r}: "
                "use another store"
            )
    return bytes.fromhex(meta["cohort_seed"])


def read_groups(path: Path) -> dict[str, str]:
    """device -> group from a CSV file with the columns device,group. Raises Invalid naming the line."""
    if path.stat().st_size > _LARGEST_GROUPS:
        raise Invalid(f"{path} is larger than {_LARGEST_GROUPS} bytes")
    groups: dict[str, str] = {}
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = csv.reader(file)
        if next(rows, None) != ["device", "group"]:
            raise Invalid(f"{path} does not start with the line device,group")
        for row in rows:
            where = f"line {rows.line_num} of {path}"
            if len(row) != 2:
                raise Invalid(f"{where} has {len(row)} fields, expected device,group")
            device, group = check_name(f"device in {where}", row[0]), check_name(f"group in {where}", row[1])
            if group in ("all", "status") or groups.setdefault(device, group) != group:
                raise Invalid(f"{where}: group {group!r} of {device} is reserved, or its second")
    return groups
