"""A soak test: a long run under seeded faults, such as killed processes, full disks, wrong clocks, floods and thefts.

    python -m undertone_studies.chaos --minutes 60 [--seed N] [--devices N] [--direct] [--output DIR]

The run passes if at the end every report and every delivery is explained (`undertone_simulator.wire.verify`), θ is what
an honest, undisturbed fleet gives, and every expected alarm was raised. The program prints its seed; the same seed
makes the same schedule.
"""
