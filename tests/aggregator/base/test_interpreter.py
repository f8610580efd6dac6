"""ThreadLimit lets a limited number of threads run at a time, and waits only a limited time for one that hangs.

test_ingest.py tests what happens to threads whose store fails.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from support.waiting import wait_for
from undertone_aggregator.base.interpreter import ThreadLimit
from undertone_aggregator.mqtt.mosquitto import mosquitto_limits
from undertone_aggregator.settings.server_options import ServerOptions


def test_no_more_than_so_many_have_a_turn() -> None:
    turns = ThreadLimit(2, 60.0)
    inside: list[int] = []
    most: list[int] = []
    # Each thread holds its place until another one has a place too, so that two run at once on any machine.
    pair = threading.Barrier(2, timeout=60)

    def work() -> None:
        with turns.limited():
            inside.append(1)
            most.append(len(inside))
            pair.wait()
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 8
    assert max(most) == 2


@contextmanager
def running(turns: ThreadLimit, count: int) -> Iterator[None]:
    """Keep ``count`` threads running under the limit ``turns`` until the block ends."""
    inside, end = threading.Semaphore(0), threading.Event()

    def work() -> None:
        with turns.limited():
            inside.release()
            end.wait(60)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
        assert inside.acquire(timeout=60)
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()


def test_threads_that_hang_stop_counting() -> None:
    now = [0.0]
    turns = ThreadLimit(2, 60.0, clock=lambda: now[0])
    entered = 0
    with running(turns, 2):
        now[0] = 60.5
        for _ in range(5):
            with turns.limited():
                entered += 1
                now[0] += 1.0
    assert entered == 5


def test_threads_run_in_the_order_in_which_they_came_but_a_first_one_before_them() -> None:
    turns, ran = ThreadLimit(1, 600.0), []

    def work(name: str, *, first: bool) -> None:
        with turns.limited(first=first):
            ran.append(name)

    threads = []
    with turns.limited():
        for number, name in enumerate(("a", "b", "c", "first")):
            threads.append(threading.Thread(target=work, args=(name,), kwargs={"first": name == "first"}))
            threads[-1].start()
            wait_for(lambda number=number: turns.waiting == number + 1)
    for thread in threads:
        thread.join()
    assert ran == ["first", "a", "b", "c"]


def test_a_thread_that_counts_already_goes_on() -> None:
    turns = ThreadLimit(1, 600.0)
    turns.enter()
    with turns.limited():
        pass
    with running(turns, 1):
        assert turns.waiting == 0


def test_a_thread_that_waits_for_its_disk_lets_another_one_run() -> None:
    turns, entered = ThreadLimit(1, 600.0), threading.Event()

    def other() -> None:
        with turns.limited():
            entered.set()

    thread = threading.Thread(target=other)
    with turns.limited():
        thread.start()
        assert not entered.is_set()
        turns.leave()
        turns.leave()
        assert entered.wait(60)
    thread.join()


def test_one_that_hangs_is_waited_for_a_moment_only() -> None:
    turns = ThreadLimit(1, 0.05)
    began = time.monotonic()
    with running(turns, 1), turns.limited():
        assert time.monotonic() >= began + 0.05


def test_a_brokers_window_holds_a_batch() -> None:
    window = next(line for line in mosquitto_limits() if line.startswith("max_inflight_messages"))
    assert int(window.split()[1]) >= ServerOptions().batch
