"""The histograms of a group in the form that estimators take."""

from collections.abc import Mapping

from undertone_aggregator.counts.compact import Tables
from undertone_aggregator.counts.histograms import Histograms
from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key


def tables_of(partial: Mapping[Key, Counts], group: str = EVERYBODY) -> Tables:
    """Return the histograms of one group of a Partial."""
    ((_, tables),) = Histograms.of(partial).each_group([group])
    return tables
