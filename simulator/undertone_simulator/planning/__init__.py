"""Planning: predicted errors for a population that is known, before anybody deploys anything.

Start reading: ``predict.py``.
"""
