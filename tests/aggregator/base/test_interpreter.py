"""ThreadLimit: few threads at a time, and one that hangs holds no other up. A failing store's: see test_ingest."""

import threading
import time

from undertone_aggregator.base.interpreter import ThreadLimit
from undertone_aggregator.mqtt.mosquitto import mosquitto_limits
from undertone_aggregator.settings.server_options import ServerOptions


def test_no_more_than_so_many_have_a_turn() -> None:
    turns = ThreadLimit(2, 60.0)
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        with turns.limited():
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 8
    assert max(most) == 2


def test_one_that_hangs_is_waited_for_a_moment_only() -> None:
    turns = ThreadLimit(1, 0.05)
    entered = False
    with turns.limited(), turns.limited():
        entered = True
    assert entered
    # What was entered without a turn gives none back.
    assert turns._free._value == 1


def test_a_brokers_window_holds_a_batch() -> None:
    window = next(line for line in mosquitto_limits() if line.startswith("max_inflight_messages"))
    assert int(window.split()[1]) >= ServerOptions().batch
