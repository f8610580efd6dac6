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
        " much simulation allows, which the last column says; ranges average 48 slots each, so there are fewer of"
        " them. The prediction is for readings of the whole day, and the simulation draws them from it."
    ),
    "poisoning": (
        "The papers assume honest devices. A fake one can send any symbol that an honest one may draw, and the best"
        " lie is the largest: it shifts the mean by its share times what that symbol decodes to, less the mean, which"
        " is the bound in the last column. Smaller ε means larger decoded values, hence cheaper lies. At ε = 0.5 the"
        " Hybrid reports by stochastic rounding alone, and the symbols of its piecewise part, which decode further"
        " out, are refused: lies move it about half as far as Piecewise. The median over groups does not help once"
        " there are liars in every group: it defends against few fakes, or against fakes that cluster, and against"
        " others only authentication does."
    ),
    "tops-fig5": (
        "The paper prefers a fan-out of 16 with consistency to the binary tree, by experiment; the constants of the"
        " noise are exact here and need no data: 14276 for H2, 3195 for H16, 1171 for H16 made consistent, times"
        " θ²/ε². What the experiment adds is what smoothing gains on top, which depends on the stream."
    ),
    "cgm-edrp": (
        "The paper reports errors of the population mean that fall with C and reach below independent noise's. On"
        " half-hourly meters both hold for the noise: what ships has half of the paper's variance (its √l calibration"
        " is loose by 2), and an eighth of independent noise's. But these readings move faster than C = .05 of the"
        " range in single half-hours; clipping then leaves a bias of 45 Wh that no fleet averages away, and from 10^5"
        " meters on smoothed independent noise, which needs no clipping, is the better choice. The paper clips against"
        " the raw predecessor, which hides part of that bias and breaks the proof."
    ),
    "cgm-taxi": (
        "Positions of taxis are the paper's smooth case; its data are not here, so this is a synthetic stand-in. Raw,"
        " correlated noise is well ahead of independent noise in small fleets, as in the paper; smoothed on the"
        " server, independent noise catches up, and in large fleets clipping bias decides."
    ),
    "theta": (
        "The papers have no such table. ToPL reports that its white box (SW-W) beats plain Square Wave (SW) on its"
        " four streams, and leaves open how far either is from the best threshold. Measured against the best threshold"
        " that the true frequencies would give, smoothed EM is tens to a thousand times worse on small counts, because"
        " a little estimated mass far out in a domain of thousands costs more than the noise; SW-W stops at a run of"
        " empty bins and is good or bad by luck, and on half-hourly meters it gets worse as ε grows. The default fits"
        " a tail instead and stays near 1 on everything smooth; where one reading in ten is a hundred times the"
        " others, and ε is small, it misses too, and docs/threshold.md says how far."
    ),
    "coverage": (
        "The papers publish no intervals. The 95 % interval is for the truncated mean of the devices that reported,"
        " whose readings are fixed, so only the mechanism's exact variance counts: it holds at its rate, and predicted"
        " over measured standard error is 1. The wider interval is meant for the raw mean and adds a model of what"
        " truncation removes, hour by hour; it holds more often than its 95 % on average, and less often in single"
        " half-hours, because what the threshold rounds have seen of an hour is little."
    ),
    "tables-edrp": (
        "ToPL ends with the Hybrid under a threshold that is made for range queries of one stream. For the mean of"
        " 622 meters in one half-hour two things change: the objective counts what one slot sums, and the mechanism is"
        " designed for the readings that the threshold rounds showed. The table is compared with the Hybrid at the"
        " same threshold as well, so that neither gain hides the other. The table's gain grows with ε and is what its"
        " design predicts; what is left over ToPL is the threshold's."
    ),
    "tables-ratios": (
        "No paper designs a mechanism for the readings at hand. The ratio is the variance among the readings over the"
        " Hybrid's at the same threshold; estimated and true frequencies give nearly the same, so the design does not"
        " chase its own noise. The gain is small at ε = 0.5 and more than half at ε = 4, since little noise leaves"
        " room for a shape. The worst reading may be up to a quarter above the Hybrid's, which is the cap that buys"
        " the gain."
    ),
    "tops-table1": (
        "Fare and Kosarak are not at hand; what stands in for them has the paper's quantiles, mean and maximum and no"
        " order in time. POS is the paper's. The DNS that the authors publish is another extract than their Table 1's:"
        " its largest value is 28 and not 617, which makes every public bound on it looser, and helps whoever finds a"
        " small threshold."
    ),
    "tops-fig1": (
        "The paper finds its approximation (Eq. 6) close to Eq. 4's error on DNS, and their least values close to"
        " each other. With c = 60, the mean excess that it assumes, Eq. 6 is far too large at small thresholds on this"
        " extract, whose values end at 28, and its minimum lies at almost twice the best threshold. Our default"
        " replaces c by the excess that the data show through the same noisy maximum: it follows the measured error"
        " over two orders of magnitude, and its minimum costs a few per cent."
    ),
    "tops-fig2": (
        "As in the paper, ToPS follows the stream at an ε at which PAK shows nothing. PAK's curve is off by orders of"
        " magnitude more than in the paper: at small ε its threshold saturates at the public bound, which is seventy"
        " times the largest value of this extract."
    ),
    "tops-fig3": (
        "The paper: ToPS beats PAK by orders of magnitude, and the threshold (NM-E) gains more than the better"
        " hierarchy. The first holds on every stream, by three to six orders; the second on POS, DNS and Kosarak,"
        " while on EDRP and Fare, whose thresholds are nearer to the public bound, the hierarchy gains more at the two"
        " smallest ε. On the stand-ins for Fare and Kosarak, ToPS and NM-E + H2 are not alike, as they are in the"
        " paper: truncation is not the largest error once the threshold is right. And the paper's constant c = 60 is"
        " in units of item counts, so that on readings in Wh it truncates far too low (an error fifteen to thirty-five"
        " times ours on EDRP), while on POS, for which it was chosen, it is as good as our default or better."
    ),
    "tops-fig4": (
        'The paper takes "recent" as the best smoother on DNS and among the best elsewhere. Here mean and median are'
        " ahead on every stream, by 7 to 17 %: averaging the history takes noise away, and these streams change too"
        " slowly (the stand-ins not at all) for it to cost as much in bias. The default stays the paper's; the"
        " difference is small beside that of any other choice in this chapter."
    ),
    "tops-fig6": (
        "The paper: no single quantile is right for all streams and all ε, and NM-E comes close to the best of them."
        " Both hold here. The best of the six moves from 99.5 % to 99.9 % as ε grows, and 85 % costs a factor of a"
        " hundred or more; NM-E is within a factor of 2.6 of the best true quantile, which no private method knows,"
        " and farthest off at the smallest ε, where its own choice is noisy."
    ),
    "tops-fig7": (
        "The paper: NM-E beats S-PAK and S-P everywhere and hardly depends on ε, and both of those are worse than"
        " Base, as their thresholds are too large. Here their thresholds are not only large, they sit at the public"
        " bound: smooth sensitivity at these ε is of the size of the domain. Under the consistent hierarchy their"
        " errors are below Base's on four streams and above it on Kosarak. NM-E's errors hold to within a factor of"
        " about three over the whole range of ε."
    ),
    "tops-fig8": (
        "The paper: SW-W beats SW on all four streams, by orders of magnitude on some, and does not improve with ε."
        " We find the same but for EDRP, where SW-W is the worse of the two from ε = 1 on, and the reason: its"
        " threshold falls as ε grows (on EDRP to a third), because a sharper histogram has empty bins to stop at"
        " sooner. Ours settles at one threshold as ε grows and has the least error of the three at every ε and on"
        " every stream in the table, by between 8 % (where SW-W happens to be right) and a factor of two hundred. SW"
        " without the white box puts its threshold deep into the empty domain, as in the paper."
    ),
    "tops-fig9": (
        "The paper shows ToPL on the path of the truth at ε = 1, by one run. So do we: the reconstructed means of"
        " 4096 reports follow it with an error of a thirteenth of the signal. SW-W's larger threshold makes several"
        " times the error of ours, and SW's is above the signal itself."
    ),
    "tops-fig10": (
        "The paper: other metrics rank the methods as the mean square error does, but the better hierarchy no longer"
        " helps in absolute error. Here it helps in all of them: with H2 the noise is four times larger in variance"
        " before consistency, and more after it. As in the paper, errors per value (MMAE, MMSE) are less stable, as"
        " short ranges decide them."
    ),
    "cgm-london": (
        "The paper has no daily meters. A stream of 484 reports under one budget is beyond what a hundred households"
        " can show: their error exceeds the range. Correlated noise is three times below independent noise raw; but"
        " the smoother takes more from independent noise, so that after smoothing the two are alike in small fleets,"
        " and clipping decides in large ones, as anywhere."
    ),
    "cgm-kaggle": (
        "The paper finds CGM ahead of its baseline by a wide margin on page views, most at small ε. On a synthetic"
        " stand-in for those data we find the same raw: the paper's variance is a tenth of independent noise's, ours"
        " half of the paper's. Its budget is for each report, which is no guarantee for a page: 550 reports at ε = 1"
        " add up to ε = 46. Smoothed on the server, CGM keeps a lead of a quarter with 1,578 pages; with a million,"
        " independent noise is ahead, as clipping leaves a bias."
    ),
    "counting-blog": (
        "The blog's order of the simple counters holds: noise on each item beats noise on each prefix, and blocks"
        " beat both. Its binary mechanism divides ε by log T where the tree has one level more, and its two-level loop"
        " overruns when T is no multiple of the block; done right, binary is behind two-level at these T, and would"
        " pass it for longer streams only. The square-root factorisation, newer than the blog, is best, at the price"
        " of a δ. Counters without an end pay for it: hybrid has one and a half times binary's error, unbounded more"
        " than twice."
    ),
    "counting-sanitizer": (
        "The paper's bounds are a failure probability of kβ after k blocks, and an error of α + 2β for many."
        " Measured, failures do not add up: the blocks' errors are independent and average out, so that the share of"
        " streams off by more than α falls with k, and so does the 90 % error. Both bounds hold, and are far from"
        " tight from a few blocks on. (The 15 % of one block are nine of sixty runs, where 9 % are expected.)"
    ),
}
