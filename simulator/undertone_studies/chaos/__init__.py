"""A soak test: a long run under seeded faults, such as killed processes, full disks, wrong clocks, floods and thefts.

    python -m undertone_studies.chaos --minutes 60 [--seed N] [--devices N] [--output DIR]

It passes if at the end the two identities of report counts hold with nothing unexplained, θ is what an honest,
undisturbed fleet gives, and every expected alarm was raised. It prints its seed; the same seed makes the same schedule.
"""
