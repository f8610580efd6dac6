"""The order of tests, for several workers at once (`pytest -n 4 --dist worksteal`).

xdist cuts this order into equal pieces, one for each worker. A worker that has finished its piece takes tests from the
end of another worker's piece. Tests with brokers, servers and fleets mostly wait. If they were all in one piece, one
worker would still be busy with them when the others have finished. If all workers began with them, the processors would
be idle. So some workers begin with tests that mostly wait. The others have only tests that compute: there are as many
of these workers as the machine has processors, but at most half of all workers.
"""

import os
from collections.abc import Sequence

import pytest

# Marker -> the weight of a test with it, when files are divided among workers. A test with none of them does not wait.
_WEIGHTS = {"long": 20, "waits": 8, "broker": 1}


def dealt(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the same tests, in the order for ``workers`` workers.

    A file's tests stay together, because they may share fixtures. Each long test is placed by itself, since a file of
    long tests would keep one worker busy to the end.
    """
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid if "long" in item.keywords else item.nodeid.partition("::")[0], []).append(item)
    weights = {file: sum(map(_weight, tests)) for file, tests in files.items()}
    computing = min(os.cpu_count() or 1, workers // 2)
    waiting: list[list[pytest.Item]] = [[] for _ in range(workers - computing)]
    loads = [0] * len(waiting)
    # The heaviest file comes first. Each file goes to the worker with the least work so far.
    for file in sorted((file for file in files if weights[file]), key=weights.__getitem__, reverse=True):
        lightest = loads.index(min(loads))
        loads[lightest] += weights[file]
        waiting[lightest] += files[file]
    rest = [item for file, tests in files.items() if not weights[file] for item in tests]
    order: list[pytest.Item] = []
    for worker in range(workers):
        # xdist divides the remaining tests among the remaining workers in the same way.
        size = (len(items) - len(order)) // (workers - worker)
        begins = waiting[worker] if worker < len(waiting) else []
        more = max(0, size - len(begins))
        order += [*begins, *rest[:more]]
        del rest[:more]
    return order + rest


def _weight(item: pytest.Item) -> int:
    return max((weight for marker, weight in _WEIGHTS.items() if marker in item.keywords), default=0)
