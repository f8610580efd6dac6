"""A backlog of reports for several workers, by partition, as MQTT packets."""

from collections.abc import Callable
from dataclasses import replace

from undertone_aggregator.counts.seen import device_key
from undertone_aggregator.ingest.ingest import IngestPlan, Sessions, Share
from undertone_aggregator.mqtt import packets
from undertone_shared.campaign import Campaign
from undertone_studies.bench import ingest as bench

_DEVICES = 20_000


def plan_of(partitions: int) -> Callable[[int], IngestPlan]:
    """Return a function that gives the plan of each partition of the benchmark's campaign."""
    plan = replace(
        bench.PLAN,
        share=Share(workers=partitions),
        sessions=Sessions(tuple(range(partitions)), bench.CAMPAIGN),
        lease_seconds=60,
    )
    return plan.of_worker


def reports_of(campaign: Campaign, partitions: int, reports: int) -> list[list[tuple[bytes, bytes]]]:
    """Make (topic, payload) of each partition's reports, slot after slot."""
    reports_by_partition: list[list[tuple[bytes, bytes]]] = [[] for _ in range(partitions)]
    devices = min(_DEVICES, max(reports // 4, 1))
    names = [f"meter-{number:05d}" for number in range(devices)]
    where = [reports_by_partition[device_key(name)[0] % partitions] for name in names]
    for number in range(reports):
        topic, payload = bench.report_of(campaign, names[number % devices], number // devices, number)
        where[number % devices].append((topic.encode(), payload))
    return reports_by_partition


def numbered(number: int, topic: bytes, payload: bytes) -> bytes:
    """Return a report as a PUBLISH packet at QoS 1 with the packet id ``number`` + 1; ``number`` is 0 to 65,534."""
    head = len(topic).to_bytes(2, "big") + topic + (number + 1).to_bytes(2, "big")
    return bytes((packets.PUBLISH | packets.QOS1, len(head) + len(payload))) + head + payload
