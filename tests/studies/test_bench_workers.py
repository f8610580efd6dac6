"""The benchmark of several workers runs with a stand-in for the broker, and with mosquitto."""

import pytest

from support.postgres import Postgres
from undertone_studies.bench import workers


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.broker
def test_two_workers_drain_a_backlog(
    postgres: Postgres, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    for measure in (workers.by_stand_in, workers.by_mosquitto):
        # `measure` raises an error unless 4000 reports are counted.
        drain = measure(postgres, 2, 4000)
        assert drain.rate > 0
        assert drain.workers > 0
