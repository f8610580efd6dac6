"""Shared code that boards do not contain: issuing campaigns, reading reports, and analysis of rules and mechanisms.

Start reading: ``issue.py`` and ``intake.py`` for messages; ``contract.py`` for all that is called on a mechanism.
"""
