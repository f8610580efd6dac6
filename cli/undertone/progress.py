"""Progress of work that takes a while, on standard error."""

import time

from undertone_aggregator.base.plural import many

# Seconds between two lines about progress.
_SAY_SECONDS = 10.0


class Progress:
    """Shows how much is done: on a terminal as a bar, elsewhere as a line at most every `_SAY_SECONDS`.

    ``what``: what is counted, such as device-slots. ``announce``: say before the start how much there is to do, as for
    a campaign that lasts a year.
    """

    def __init__(self, what: str, *, announce: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._what = what
        self._announce = announce
        self._console = Console(stderr=True, highlight=False)
        self._bar = Bar(
            TextColumn("simulating"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:,} of {task.total:,} " + what),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("simulating", total=0)
        self._began = self._said = time.monotonic()

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, done: int, planned: int) -> None:
        """Show how many are done, of those planned."""
        self._bar.update(self._task, completed=done, total=planned)
        now = time.monotonic()
        if not done and self._announce:
            self._console.print(f"{planned:,} {self._what} are to be simulated; --slots and --devices make them fewer")
        elif done and not self._console.is_terminal and now >= self._said + _SAY_SECONDS:
            self._said = now
            left = (now - self._began) / done * (planned - done) / 60
            time_left = f"about {many(round(left), 'minute')}" if left >= 0.5 else "less than a minute"
            self._console.print(f"{done:,} of {planned:,} {self._what} are done; time left: {time_left}")
