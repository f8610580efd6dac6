"""Planning: predicts the errors of a campaign for known readings, before anything is deployed.

Start reading: ``predict.py``.
"""
