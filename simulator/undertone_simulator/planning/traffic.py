"""Network traffic of a campaign for one device, in bytes and packets per day."""

from dataclasses import dataclass
from fractions import Fraction

from undertone_aggregator.design import square_wave
from undertone_aggregator.threshold import first_edges
from undertone_device.mqtt.packets import DEFAULT_KEEPALIVE, encode_publish
from undertone_shared.campaign import HEADER_BYTES, SIGNATURE_BYTES
from undertone_shared.off_board.issue import build
from undertone_shared.report import LENGTH
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.topics import DEFAULT_PREFIX, report_topic

# Bytes that TLS 1.3 and TCP/IPv4 add to each packet; bytes of a PUBACK.
RECORD_BYTES = 22
HEADERS_BYTES = 40
_PUBACK = 4
_REPUBLICATIONS = 24
# A ping and its answer have two bytes each. A board pings after half a keepalive without a message.
_PINGS = 86400 // (DEFAULT_KEEPALIVE // 2)
_PING_BYTES = 2 * (2 + RECORD_BYTES + HEADERS_BYTES)


@dataclass(frozen=True)
class Traffic:
    """Traffic of one device in one day.

    The fields are its reports; their MQTT bytes with acknowledgements; the same with TLS and TCP/IP; and packets in
    both directions. For a device that stays connected there are two more: the bytes of the campaign's hourly copies,
    and those of pings with TLS and TCP/IP.
    """

    reports: int
    mqtt_bytes: int
    bytes: int
    packets: int
    campaign_bytes: int
    ping_bytes: int


def traffic(
    unit: str, bound: int, per_day: int, report: ReportRule, epsilon: Fraction, campaign: str, device: str
) -> Traffic:
    """Compute the traffic of a device in a day of ``per_day`` slots."""
    packet = len(encode_publish(1, report_topic(DEFAULT_PREFIX, campaign, device), bytes(LENGTH)))
    seconds = 86400 // per_day
    body = build(
        name=campaign,
        sensor="load",
        unit=unit[:16],
        measure="sum",
        offset=0,
        bound=bound,
        slot_seconds=seconds,
        cycle=per_day,
        epoch=0,
        last_slot=per_day,
        default=0,
        cohort=Cohort(square_wave(epsilon, first_edges(bound, 128))),
        report=report,
    ).body
    both_ways = packet + _PUBACK
    return Traffic(
        per_day,
        per_day * both_ways,
        per_day * (both_ways + 2 * (RECORD_BYTES + HEADERS_BYTES)),
        2 * per_day,
        _REPUBLICATIONS * (HEADER_BYTES + len(body) + SIGNATURE_BYTES),
        _PINGS * _PING_BYTES,
    )
