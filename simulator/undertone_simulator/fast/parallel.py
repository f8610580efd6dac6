"""Parallel work in processes.

Results come in the order of the tasks, whatever the number of workers.
"""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence, Sized
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, TypeVar

from undertone_shared.checks import check_integer

Task = TypeVar("Task", bound=Sized)
Result = TypeVar("Result")
Context = TypeVar("Context")
# Callback with the amount of work done, in the units of a task's length.
Tick = Callable[[int], None]
Work = Callable[[Context, Task, Tick], Result]
# A function that runs tasks and returns their results in the order of the tasks.
Call = Callable[[Sequence[Task], Tick], Iterator[Result]]

LARGEST_NUMBER = 1024


class Workers(Protocol):
    """Workers that run tasks: this process, or several processes."""

    def bind(self, work: "Work[Context, Task, Result]", context: Context) -> "Call[Task, Result]":
        """Return ``work`` with ``context``. Both may go to other processes, so pickle must be able to copy them."""


class InProcess:
    """Workers that are this process itself."""

    def bind(self, work: "Work[Context, Task, Result]", context: Context) -> "Call[Task, Result]":
        """Return ``work`` with ``context``, as `Workers.bind` says."""

        def call(tasks: Sequence[Task], tick: Tick) -> Iterator[Result]:
            for task in tasks:
                yield work(context, task, tick)

        return call


class LocalProcesses:
    """Workers that are ``count`` processes of this machine. The processes end when ``stack`` is closed."""

    def __init__(self, count: int, stack: ExitStack) -> None:
        self._count = count
        self._stack = stack

    def bind(self, work: "Work[Context, Task, Result]", context: Context) -> "Call[Task, Result]":
        """Return ``work`` with ``context``, as `Workers.bind` says."""
        pool = self._stack.enter_context(_pool(self._count, work, context))

        def call(tasks: Sequence[Task], tick: Tick) -> Iterator[Result]:
            for task, result in zip(tasks, pool.map(_work, tasks), strict=True):
                tick(len(task))
                yield result

        return call


@contextmanager
def workers(count: int = 1) -> Iterator[Workers]:
    """Return this process, or ``count`` processes, as workers. Raises Invalid."""
    check_integer("workers", count, 1, LARGEST_NUMBER)
    with ExitStack() as stack:
        yield LocalProcesses(count, stack) if count > 1 else InProcess()


@contextmanager
def _pool(count: int, work: Callable[..., Any], context: object) -> Iterator[ProcessPoolExecutor]:
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin, (work, context))
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        # After an error or Ctrl-C the running tasks are useless and are stopped.
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise


# The function of this pool process with its context, set when it starts.
_bound: tuple[Callable[..., Any], object] | None = None


def _begin(work: Callable[..., Any], context: object) -> None:
    global _bound
    # Ctrl-C reaches every process of the group: a worker ends silently, because the parent process reports the
    # interruption.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _bound = work, context


def _work(task: Sized) -> Any:
    assert _bound is not None
    work, context = _bound
    return work(context, task, _silent)


def _silent(done: int) -> None:
    """Ignore the progress: a callback that does nothing."""
