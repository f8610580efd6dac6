"""Counting landed reports on many machines, by Spark Structured Streaming."""
