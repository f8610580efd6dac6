"""What every mechanism must offer to the product: `check_contract` calls everything that the product calls on one."""

import json
import os

import numpy as np

from support import server
from support.designed import check_all
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.partial import Key
from undertone_aggregator.counts.seen import COUNTED, Seen
from undertone_aggregator.design.certificate import certify_campaign, certify_mechanism
from undertone_aggregator.design.mechanisms import missing, traits_of
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.estimate.reconstruct import Reconstruction
from undertone_aggregator.ingest.admission import Admission
from undertone_aggregator.ingest.fast_path import FastPath
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.ingest.landing import RAW, rows_of
from undertone_aggregator.store.store import Batch
from undertone_shared import report
from undertone_shared.campaign import Campaign, write_canonical
from undertone_shared.entropy import Entropy
from undertone_shared.topics import report_topic
from undertone_simulator.fast.draws import GivenWords
from undertone_simulator.fast.vectorised import symbols
from undertone_simulator.wire.liar import largest_lie

_DEVICES = 40


class _Words:
    """Stands for `Entropy`: draws from the given words of 32 bits."""

    def __init__(self, words):
        self._words = iter(words)

    def below(self, n):
        mask = (1 << (n - 1).bit_length()) - 1
        while True:
            word = int(next(self._words)) & mask
            if word < n:
                return word


def campaign_of(mechanism, theta):
    """Return a campaign whose reports the mechanism draws.

    Raises an error if the mechanism does not fit into a campaign.
    """
    fields = json.loads(server.campaign(theta=theta, cohort_stride=5, bound=2000).body)
    fields["rule"]["mechanism"] = mechanism.describe()
    pieces = []
    write_canonical(fields, pieces.append)
    return Campaign(b"".join(pieces))


def check_contract(mechanism, epsilon, theta):
    """Try the mechanism in a campaign, a device, a worker, an estimate and a certificate.

    Raises AssertionError, or the error of the part with which the mechanism does not work. If the mechanism lacks
    something that the product calls, the error names it.
    """
    lacks = missing(mechanism)
    assert not lacks, "; ".join(lacks)
    check_all(mechanism, theta, range(mechanism.levels + 1))
    certify_mechanism("it", mechanism, epsilon, theta, None)

    # The campaign's message has room for the mechanism, and a device draws with it.
    campaign = campaign_of(mechanism, theta)
    drawn = campaign.rule.report.mechanism
    assert json.dumps(drawn.describe()) == json.dumps(mechanism.describe())
    entropy, sent = Entropy(os.urandom), []
    for number in range(_DEVICES):
        entropy.refill()
        _, (symbol,), _ = campaign.rule.draw(campaign, server.FIRST, 7 * theta // 10, False, None, entropy)
        payload = report.pack(report.REPORT, campaign.fingerprint, server.FIRST, (symbol,), 1)
        sent.append(Delivery(report_topic(server.PREFIX, campaign.name, f"d{number}"), payload, False))

    # A worker accepts reports that are not for the threshold: one by one, by the fast path, and as landed rows.
    members = [campaign.schedule.is_member(campaign.schedule.place(f"d{n}"), server.FIRST) for n in range(_DEVICES)]
    sent = [delivery for delivery, member in zip(sent, members, strict=True) if not member]
    slow, lane = Batch(), Batch()
    for delivery in sent:
        admission(campaign).judge(*delivery[:3], server.FIRST + 2, slow)
    FastPath(admission(campaign)).judge(sent, server.FIRST + 2, lane)
    assert slow.outcomes == lane.outcomes == {COUNTED: len(sent)}
    assert slow.partial == lane.partial
    assert rows_of(admission(campaign), sent, server.FIRST + 2)["outcome"] == [RAW] * len(sent)
    assert mechanism.occurs(largest_lie(mechanism))
    assert not mechanism.occurs(mechanism.symbols)

    # The counts give an estimate, and the campaign gives a certificate.
    key = Key(campaign.name, campaign.fingerprint, report.REPORT, "all", server.FIRST)
    (estimate,) = estimates_of(
        Reconstruction(Timeline([Epoch(campaign, 0, decoded=traits_of(mechanism).decoded)])), {key: slow.partial[key]}
    )
    assert estimate.reports == len(sent)
    # The reports for the threshold have ε = 4, which can be more than the ε of the mechanism. So the campaign is
    # checked against ε = 8.
    _, certificate = certify_campaign(campaign.body, "8")
    assert certificate.as_json()["integers"] == drawn.describe()

    # A simulated population draws the same symbols as single devices.
    words = np.random.default_rng(8).integers(0, 1 << 32, (200, 200), dtype=np.uint32)
    readings = np.arange(200) * theta // 199
    together = symbols(mechanism, readings, theta, GivenWords(words))
    for reading, row, symbol in zip(readings.tolist(), words, together.tolist(), strict=True):
        single = _Words(row)
        part = mechanism.choose(single)
        assert part.draw(part.level(reading, theta, single), single) == symbol


def admission(campaign):
    """The part of a worker that admits reports of the campaign."""
    made = Admission(server.PREFIX, campaign.name, 1, Seen(), cells=cells_of)
    made.timeline = Timeline([Epoch(campaign, 0)])
    return made
