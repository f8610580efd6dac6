"""[landing]: whether deliveries are also written to files, for how long they are kept, and what counts them."""

from dataclasses import dataclass
from pathlib import Path

from undertone_aggregator.base.plural import many
from undertone_aggregator.settings.landing_plan import SERVER, SPARK, LandingPlan
from undertone_aggregator.settings.options import Checked, choice, integer, option, text
from undertone_shared.errors import Invalid


@dataclass(frozen=True, kw_only=True)
class LandingOptions(Checked):
    """[landing]: writes every delivery to files, for Spark to count on many machines, and for audits."""

    TABLE = "landing"

    folder: str | None = option(None, "the folder of files with each device's perturbed reports under its name; "
                                "absent: no files. Only each report's own guarantee protects a device from a reader "
                                "of these files: keep them no longer than you need", text)  # fmt: skip
    days: int = option(7, "days after which files are removed; where Spark counts, only files that it has counted",
                       integer(1, 3650))  # fmt: skip
    seconds: int = option(10, "the batches of this number of seconds are merged into one file", integer(1, 3600))
    counts: str = option(SERVER, "what counts reports: server (the files are for undertone recount), or spark "
                         "(undertone spark run, which needs pip install 'undertone-ldp[spark]')",
                         choice(SERVER, SPARK))  # fmt: skip

    def check_together(self) -> None:
        """Raise Invalid for options that contradict each other."""
        if self.folder is None and self.counts == SPARK:
            raise Invalid("landing.counts is 'spark', but [landing] has no folder: nothing would be counted")

    @property
    def kept_days(self) -> int | None:
        """Days for which files hold reports; None without files."""
        return None if self.folder is None else self.days

    def warning(self) -> str:
        """Return a warning about the consequences of landed files for privacy."""
        # Spark may count late, and a file that it has not counted stays.
        at_least = "at least " if self.counts == SPARK else ""
        return (
            f"warning: every report is kept under its device's name in {self.folder}, for"
            f" {at_least}{many(self.days, 'day')}: a reader"
            " of those files sees each device's perturbed reports one by one, protected by each report's own guarantee"
            " alone"
        )

    def plan(self, base: Path) -> LandingPlan | None:
        """Return the plan for workers, with the folder taken from ``base``; None without files."""
        if self.folder is None:
            return None
        return LandingPlan(str((base / self.folder).resolve()), self.seconds, self.days, self.counts)
