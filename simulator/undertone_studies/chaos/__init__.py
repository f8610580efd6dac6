"""A soak under faults, by a seeded schedule: processes killed or stopped, full disks, wrong clocks, floods, thefts.

    python -m undertone_studies.chaos --minutes 60 [--seed N] [--devices N] [--directory DIR]

At its end the two identities hold with nothing unexplained, θ is what an honest, undisturbed fleet gives, and every
alarm that should have rung has rung. It prints its seed; the same seed makes the same schedule.
"""
