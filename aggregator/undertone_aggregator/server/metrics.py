"""Metrics for Prometheus. Counts of reports are read from the stores at each scrape, so that restarts and several
workers add up.
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from undertone_aggregator.base.open_files import limit
from undertone_aggregator.base.timing import CHOICES, COMMITS, FAILURES
from undertone_aggregator.campaign.binding import PAUSED, RETIRED, RUNNING
from undertone_aggregator.campaign.newest_means import NEWEST
from undertone_aggregator.campaign.state import CHOOSING, STATES
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.estimate.publication import only_told, publication_of, told_groups
from undertone_aggregator.ingest.admission import OUTCOMES
from undertone_aggregator.ingest.lag import Lag
from undertone_aggregator.mqtt.certificates import certificate_ends
from undertone_aggregator.mqtt.dropped import DROPPED, Dropped
from undertone_aggregator.store.store import RECEIVED, Store, open_store
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.server.supervisor import Server

COUNTER, GAUGE = "counter", "gauge"
# States of a campaign whose newest mean is exported.
_OPEN = (RUNNING, CHOOSING, PAUSED)
# Name of a metric -> (type, help, labels). Prometheus adds _total to the name of a counter.
FAMILIES = {
    "undertone_build_info": (GAUGE, "Always 1; the label version holds the version.", ("version",)),
    "undertone_uptime_seconds": (GAUGE, "Seconds since the server started.", ()),
    "undertone_disk_free_bytes": (GAUGE, "Free bytes on the disk with the server's data.", ()),
    "undertone_campaign_state": (GAUGE, "1 for the state that a campaign is in.", ("campaign", "state")),
    "undertone_campaign_ready": (GAUGE, "1 when reports are taken in.", ("campaign",)),
    "undertone_deliveries": (COUNTER, "Deliveries by outcome.", ("campaign", "outcome")),
    "undertone_deliveries_received": (COUNTER, "All deliveries.", ("campaign",)),
    "undertone_reports_lost": (
        GAUGE,
        "Reports that devices made and the server has not counted.",
        ("campaign", "group"),
    ),
    "undertone_reports_lost_since_seconds": (
        GAUGE,
        "Unix time: when the oldest lost report was noticed.",
        ("campaign",),
    ),
    "undertone_ready": (GAUGE, "1 when /readyz answers 200: reports are taken in and kept.", ()),
    "undertone_campaign_signed": (GAUGE, "1 when the campaign is signed, 0 when its key is not there.", ("campaign",)),
    "undertone_silence_seconds": (GAUGE, "Seconds for which reports are overdue; 0 if none is.", ("campaign",)),
    "undertone_alarms_all": (COUNTER, "Alarms since the server started; 0 if there were none.", ("campaign",)),
    "undertone_reports_unpublished": (GAUGE, "Reports that came after their slot had settled.", ("campaign",)),
    "undertone_broker_connected": (GAUGE, "1 while the server is connected to the broker.", ()),
    "undertone_broker_stored": (GAUGE, "Messages that the broker holds for all its clients.", ()),
    "undertone_commits": (COUNTER, "Transactions in which this process stored reports.", ("campaign",)),
    "undertone_commit_seconds": (COUNTER, "Seconds that the transactions of undertone_commits took.", ("campaign",)),
    "undertone_fast_path_failures": (
        COUNTER,
        "Batches whose reports could not be checked together, so they were checked one by one.",
        ("campaign",),
    ),
    "undertone_threshold_seconds": (GAUGE, "Seconds for the newest choice of theta and mechanism.", ("campaign",)),
    "undertone_broker_dropped": (COUNTER, "Messages that the broker dropped.", ("campaign",)),
    "undertone_newest_slot_end_seconds": (GAUGE, "Unix time: end of the newest slot with a report.", ("campaign",)),
    "undertone_newest_slot_reports": (GAUGE, "Reports of the newest slot.", ("campaign",)),
    "undertone_landing_waiting_files": (GAUGE, "Landed files that Spark has not counted yet.", ("campaign",)),
    "undertone_landing_oldest_seconds": (
        GAUGE,
        "Seconds that the oldest landed file has waited for Spark.",
        ("campaign",),
    ),
    "undertone_slot_seconds": (GAUGE, "Length of a slot in seconds.", ("campaign",)),
    "undertone_theta": (GAUGE, "The truncation threshold, in the reading's unit.", ("campaign",)),
    "undertone_epoch_start_seconds": (GAUGE, "Unix time: start of the newest epoch.", ("campaign",)),
    "undertone_campaign_end_seconds": (GAUGE, "Unix time: end of the last slot.", ("campaign",)),
    "undertone_mean": (
        GAUGE,
        "Published mean of the newest settled slot, in the reading's unit.",
        ("campaign", "group", "coordinate", "series"),
    ),
    "undertone_mean_low": (
        GAUGE,
        "Lower end of the 95 % interval of undertone_mean.",
        ("campaign", "group", "coordinate", "series"),
    ),
    "undertone_mean_high": (
        GAUGE,
        "Upper end of the 95 % interval of undertone_mean.",
        ("campaign", "group", "coordinate", "series"),
    ),
    "undertone_mean_slot_end_seconds": (GAUGE, "Unix time at which the slot of undertone_mean ended.", ("campaign",)),
    "undertone_certificate_end_seconds": (GAUGE, "Unix time: end of a certificate of the server.", ("file",)),
    "undertone_endpoint_connections": (GAUGE, "Connections to the endpoint.", ()),
    "undertone_endpoint_room": (GAUGE, "Devices that may be connected at once.", ()),
    "undertone_endpoint_turned_away": (GAUGE, "Devices that cannot connect because there is no room.", ()),
    "undertone_open_files_limit": (GAUGE, "Files that the server may have open.", ()),
    "undertone_endpoint_readers": (GAUGE, "Readers that are connected to the endpoint.", ()),
    "undertone_endpoint_websockets": (GAUGE, "Connections to the endpoint over WebSocket.", ()),
    "undertone_endpoint_backlog": (GAUGE, "Reports at the endpoint that wait to be stored.", ()),
    "undertone_endpoint_oldest_seconds": (GAUGE, "Seconds that the oldest report at the endpoint has waited.", ()),
    "undertone_endpoint_throttled": (
        COUNTER,
        "How often the server waited, because a device sent too much or the store was slow.",
        (),
    ),
    "undertone_endpoint_refused": (COUNTER, "Connections that the endpoint refused or ended.", ("reason",)),
    "undertone_endpoint_unknown": (COUNTER, "Reports for unknown campaigns; they are not acknowledged.", ()),
    "undertone_alarms": (COUNTER, "Alarms since the server started.", ("campaign", "event")),
}


def text(server: "Server") -> bytes:
    """Return the metrics in Prometheus's text format. Raises Invalid without prometheus-client."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.registry import Collector
    except ModuleNotFoundError:
        raise Invalid("/metrics needs prometheus-client: pip install 'undertone-ldp[server]'") from None

    class Reader(Collector):
        def collect(self) -> Iterator[Any]:
            families = Families()
            _collect(server, families)
            return families.metrics()

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Reader())
    return bytes(generate_latest(registry))


class Families:
    """Collected samples by the names of `FAMILIES`."""

    def __init__(self) -> None:
        self._samples: dict[str, list[tuple[tuple[str, ...], float]]] = {name: [] for name in FAMILIES}

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add one sample."""
        self._samples[name].append((labels, float(value)))

    def metrics(self) -> Iterator[Any]:
        """Yield the samples as prometheus-client's metric families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kinds: dict[str, Any] = {COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily}
        for name, (kind, explain, labels) in FAMILIES.items():
            family = kinds[kind](name, explain, labels=labels)
            for values, value in self._samples[name]:
                family.add_metric(list(values), value)
            yield family


def _collect(server: "Server", families: Families) -> None:
    families.add("undertone_build_info", 1, _version())
    families.add("undertone_uptime_seconds", time.time() - server.started)
    now, state = time.time(), server.state()
    families.add("undertone_disk_free_bytes", state.free)
    families.add("undertone_open_files_limit", limit()[0])
    families.add("undertone_broker_connected", state.reachable)
    families.add("undertone_ready", not state.problems(now))
    if server.outlet.stored is not None:
        families.add("undertone_broker_stored", server.outlet.stored)
    endpoint = server.source.facts()
    if endpoint:
        families.add("undertone_endpoint_connections", endpoint["connections"])
        families.add("undertone_endpoint_room", endpoint["room"].connections)
        families.add("undertone_endpoint_turned_away", endpoint["turned_away"])
        families.add("undertone_endpoint_readers", endpoint["readers_online"])
        families.add("undertone_endpoint_websockets", endpoint["websockets"])
        families.add("undertone_endpoint_backlog", endpoint["backlog"])
        families.add("undertone_endpoint_oldest_seconds", endpoint["oldest_unacknowledged_seconds"])
        families.add("undertone_endpoint_throttled", endpoint["throttled"])
        families.add("undertone_endpoint_unknown", endpoint["unknown_campaign"])
        for reason, n in sorted(endpoint["refused"].items()):
            families.add("undertone_endpoint_refused", n, reason)
    for (campaign, event), n in sorted(server.journal.alarm_counts.items()):
        families.add("undertone_alarms", n, campaign, event)
    rung = Counter(dict.fromkeys(("", *state.campaigns), 0))
    for (campaign, _), n in server.journal.alarm_counts.items():
        rung[campaign] += n
    for campaign, n in sorted(rung.items()):
        families.add("undertone_alarms_all", n, campaign)
    certificates: dict[str, int] = {}
    for name, status in state.campaigns.items():
        for word in STATES:
            families.add("undertone_campaign_state", status.state == word, name, word)
        families.add("undertone_campaign_ready", status.ready, name)
        families.add("undertone_silence_seconds", status.silence(now), name)
        if status.signed is not None and status.state != RETIRED:
            families.add("undertone_campaign_signed", status.signed, name)
        families.add("undertone_commits", COMMITS.of(name).times, name)
        families.add("undertone_commit_seconds", COMMITS.of(name).seconds, name)
        families.add("undertone_fast_path_failures", FAILURES[name], name)
        families.add("undertone_threshold_seconds", CHOICES.of(name).last, name)
        if status.state in _OPEN:
            _add_means(name, families)
        try:
            config = server.home.config(name)
            certificates |= certificate_ends(config)
            with open_store(config.store_url, campaign=name, read_only=True) as store:
                _read(name, store, families)
                lag = Lag(config.landing.plan(config.folder))
                if lag.counts_elsewhere:
                    files = lag.backlog(store)
                    families.add("undertone_landing_waiting_files", files.files, name)
                    families.add("undertone_landing_oldest_seconds", files.age(now), name)
        except (Invalid, OSError):
            # A store that cannot be read is skipped. The campaign's state says that the campaign does not run.
            continue
    for path, end in certificates.items():
        families.add("undertone_certificate_end_seconds", end, path)


def _add_means(name: str, families: Families) -> None:
    """Add the newest published means and their intervals, and the end of their slot."""
    for estimate in NEWEST.of(name):
        group, coordinate, filtered = estimate.series
        labels = (name, group, str(coordinate), "filtered" if filtered else "raw")
        families.add("undertone_mean", estimate.estimate, *labels)
        if estimate.low is not None and estimate.high is not None:
            families.add("undertone_mean_low", estimate.low, *labels)
            families.add("undertone_mean_high", estimate.high, *labels)
    if NEWEST.of(name):
        newest = NEWEST.of(name)[0]
        # A slot's number times its length is its start.
        seconds = newest.start // newest.slot
        families.add("undertone_mean_slot_end_seconds", newest.start + seconds, name)


def _read(name: str, store: Store, families: Families) -> None:
    outcomes, epochs = store.outcomes(), store.epochs()
    least = int(store.meta("min_reports").get("min_reports", 1))
    groups = only_told(store.lost(), told_groups(store, publication_of(store, least)))
    families.add("undertone_deliveries_received", outcomes.pop(RECEIVED), name)
    # Every outcome is exported, also with the count 0: a series that begins at 1 would show no increase, and no alert
    # would fire.
    for outcome in sorted({*OUTCOMES, *outcomes}):
        families.add("undertone_deliveries", outcomes[outcome], name, outcome)
    for group, (n, _) in sorted(groups.items()):
        families.add("undertone_reports_lost", n, name, group)
    if EVERYBODY not in groups:
        families.add("undertone_reports_lost", 0, name, EVERYBODY)
    families.add("undertone_reports_unpublished", store.late_reports(), name)
    families.add("undertone_broker_dropped", Dropped.from_json(store.meta().get(DROPPED)).total, name)
    if not epochs:
        return
    campaign, newest = epochs[-1].campaign, store.newest_slot()
    families.add("undertone_slot_seconds", campaign.slot_seconds, name)
    families.add("undertone_epoch_start_seconds", campaign.epoch, name)
    families.add("undertone_campaign_end_seconds", campaign.end, name)
    if groups:
        families.add("undertone_reports_lost_since_seconds", groups[EVERYBODY][1] * campaign.slot_seconds, name)
    if campaign.theta is not None:
        families.add("undertone_theta", campaign.theta, name)
    if newest is not None:
        families.add("undertone_newest_slot_end_seconds", (newest + 1) * campaign.slot_seconds, name)
        families.add("undertone_newest_slot_reports", store.partial(newest, newest).reports, name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("undertone-ldp")
    except PackageNotFoundError:
        return "unknown"
