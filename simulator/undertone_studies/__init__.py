"""Experiments and benchmarks: a study is a function, a title and a paragraph, in a module of its own.

The other modules are what several studies share.
"""
