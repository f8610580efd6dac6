"""Simulated fleets: populations, loaders, vectorised mechanisms, wire fleets, experiments, seeded entropy."""
