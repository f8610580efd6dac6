"""Experiments: functions that return rows and print as markdown tables."""
