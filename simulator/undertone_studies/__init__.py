"""Experiments and benchmarks: a study is a function, a title and a paragraph."""
