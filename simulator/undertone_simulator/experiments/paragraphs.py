"""Chapters of the results page, and under each figure what the paper found, what we find, and why they differ."""

# Chapter -> what the names of its experiments begin with.
CHAPTERS: dict[str, tuple[str, ...]] = {
    "Threshold and intervals": ("theta", "coverage", "plan", "poisoning"),
    "Mechanisms": ("tables",),
    "ToPS and ToPL (CCS 2021)": ("tops",),
    "CGM (PVLDB 2021)": ("cgm",),
    "Counting and streaming sanitizers": ("counting",),
}

PARAGRAPHS: dict[str, str] = {}
