"""[landing]: whether deliveries are saved as files, where, for how long, and which engine counts them."""

from dataclasses import dataclass
from pathlib import Path

from undertone_aggregator.settings.landing_plan import SERVER, SPARK, LandingPlan
from undertone_aggregator.settings.options import Checked, choice, integer, option, text
from undertone_shared.errors import Invalid


@dataclass(frozen=True, kw_only=True)
class LandingOptions(Checked):
    """[landing]: every delivery is saved in files, for an engine that counts on many machines and for audits."""

    TABLE = "landing"

    folder: str | None = option(None, "the folder of files with each device's perturbed reports under its name; "
                                "absent: nothing is kept. All that protects a device from who reads them is each "
                                "report's own guarantee: keep them no longer than you need", text)  # fmt: skip
    days: int = option(7, "files are removed after so many days; of those that Spark counts, once it has counted them",
                       integer(1, 3650))  # fmt: skip
    seconds: int = option(10, "batches of so long a time are gathered into one file", integer(1, 3600))
    counts: str = option(SERVER, "who counts: server (the files are for undertone recount), or spark (undertone spark "
                         "run, with the extra spark)", choice(SERVER, SPARK))  # fmt: skip

    def check_together(self) -> None:
        """Check that the options go together. Raises Invalid."""
        if self.folder is None and self.counts == SPARK:
            raise Invalid("landing.counts is 'spark', but [landing] has no folder: nothing would be counted")

    @property
    def kept_days(self) -> int | None:
        """Number of days for which reports are kept in files, None without files."""
        return None if self.folder is None else self.days

    def warning(self) -> str:
        """Return a warning about the privacy of saved deliveries."""
        return (
            f"warning: every report is kept under its device's name in {self.folder}, for {self.days} days: who reads"
            " those files sees each device's perturbed reports one by one, with nothing but each report's own guarantee"
        )

    def plan(self, base: Path) -> LandingPlan | None:
        """Return the workers' settings, with the folder relative to ``base``; None if landing is off."""
        if self.folder is None:
            return None
        return LandingPlan(str((base / self.folder).resolve()), self.seconds, self.days, self.counts)
