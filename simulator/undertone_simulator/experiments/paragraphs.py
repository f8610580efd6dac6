"""Chapters of the results page, and under each figure what the paper found, what we find, and why they differ."""

# Chapter -> what the names of its experiments begin with.
CHAPTERS: dict[str, tuple[str, ...]] = {
    "Threshold and intervals": ("theta", "coverage", "plan", "poisoning"),
    "Mechanisms": ("tables",),
    "ToPS and ToPL (CCS 2021)": ("tops",),
    "CGM (PVLDB 2021)": ("cgm",),
    "Counting and streaming sanitizers": ("counting",),
}

PARAGRAPHS: dict[str, str] = {
    "plan": (
        "No paper has this table: it holds `undertone plan` to account. A ratio of 1 means that the error which was"
        " promised before a campaign is the one that repeated campaigns have. The ratio is known only as well as so"
        " many simulated slots allow, which the last column says; ranges average 48 slots each, so there are fewer of"
        " them. The prediction is for readings of the whole day, and the simulation draws them from it."
    ),
    "poisoning": (
        "The papers assume honest devices. A fake one can send any symbol, and the best lie is the largest: it shifts"
        " the mean by its share times what that symbol decodes to, less the mean, which is the bound in the last"
        " column. Smaller ε means larger decoded values, hence cheaper lies. The median over groups does not help once"
        " there are liars in every group: it defends against few fakes, or against fakes that cluster, and against"
        " others only authentication does."
    ),
    "tops-fig5": (
        "The paper prefers a fan-out of 16 with consistency to the binary tree, by experiment; the constants of the"
        " noise are exact here and need no data: 14276 for H2, 3195 for H16, 1171 for H16 made consistent, times θ²/ε²."
        " What the experiment adds is what smoothing gains on top, which depends on the stream."
    ),
    "cgm-edrp": (
        "The paper reports errors of the population mean that fall with C and reach below independent noise's. On"
        " half-hourly meters both hold for the noise: what ships has half of the paper's variance (its √l calibration"
        " is loose by 2), and a third of independent noise's. But these readings move faster than C = .05 of the range"
        " in single half-hours; clipping then leaves a bias of 45 Wh that no fleet averages away, and from 10^5 meters"
        " on smoothed independent noise, which needs no clipping, is the better choice. The paper clips against the raw"
        " predecessor, which hides part of that bias and breaks the proof."
    ),
    "cgm-taxi": (
        "Positions of taxis are the paper's smooth case; its data are not here, so this is a synthetic stand-in. Raw,"
        " correlated noise is well ahead of independent noise in small fleets, as in the paper; smoothed on the server,"
        " independent noise catches up, and in large fleets clipping bias decides."
    ),
}
