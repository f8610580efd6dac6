"""Plans: the predicted errors and costs of a campaign, for readings that are known.

Start reading: ``plan.py``, which calls one of the planners; all of them take their errors from ``prediction.py``.
"""
