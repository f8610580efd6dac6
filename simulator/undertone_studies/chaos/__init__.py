"""A soak test: a long run under seeded faults, such as killed processes, full disks, wrong clocks, floods and thefts.

    python -m undertone_studies.chaos --minutes 60 [--seed N] [--devices N] [--direct] [--output DIR]

The run fails if a report or a delivery is unexplained (`undertone_simulator.wire.verify`), if θ differs from that of
the same fleet without faults by more than a factor of 2, or if the server's log lacks an expected line; ``judge.py``
has all conditions. The program prints its seed; the same seed makes the same schedule.
"""
