"""The newest published means, and the metrics that show them."""

import math

from undertone_aggregator.campaign.newest_means import NEWEST, NewestMeans
from undertone_aggregator.estimate.estimates import MEASURED, MODEL, Estimate, Load, Series
from undertone_aggregator.server import metrics
from undertone_aggregator.server.metrics import Families

ALL = Series()


def estimate(slot: int, series: Series = ALL, kind: str = MEASURED, mean: float = 200.0) -> Estimate:
    return Estimate(slot, 60 * slot, series, kind, 50, 0, *Load.of(mean, 4.0)[:4], 900)


def test_only_the_newest_slots_means_are_kept() -> None:
    newest = NewestMeans()
    assert newest.of("power") == ()
    filtered = estimate(6, Series("all", 1, True))
    newest.publish("power", 6, [estimate(5), estimate(6), filtered, estimate(5, Series("west"))])
    assert newest.of("power") == (estimate(6), filtered)
    newest.publish("power", 7, [estimate(7, kind=MODEL)])
    assert newest.of("power") == (), "no mean is measured in a threshold round"


def test_metrics_show_each_series_with_its_interval() -> None:
    name = "test-newest-means"
    NEWEST.publish(name, 6, [estimate(6), estimate(6, Series("west", 2, True), mean=100.0)])
    families = Families()
    metrics._add_means(name, families)
    NEWEST.publish(name, 7, [])
    samples = {
        (
            sample.name,
            sample.labels.get("group"),
            sample.labels.get("series"),
            sample.labels.get("coordinate"),
        ): sample.value
        for family in families.metrics()
        for sample in family.samples
    }
    assert samples["undertone_mean", "all", "raw", "1"] == 200.0
    assert math.isclose(samples["undertone_mean_low", "all", "raw", "1"], 200.0 - 1.959963984540054 * 4)
    assert math.isclose(samples["undertone_mean_high", "west", "filtered", "2"], 100.0 + 1.959963984540054 * 4)
    assert samples["undertone_mean_slot_end_seconds", None, None, None] == 420.0
    metrics._add_means(name, without := Families())
    assert not [sample for family in without.metrics() for sample in family.samples]
