"""What no board carries: issuing campaigns, reading reports, and what servers and analysts ask of rules and mechanisms.

Start reading: ``issue.py`` and ``intake.py`` for messages; ``contract.py`` for all that is called on a mechanism.
"""
