"""Changes: what a changed plan does to a campaign that runs, its extension, its successor, and devices that move.

Owns the commands ``campaign apply``, ``extend`` and ``succeed``, ``devices move`` and ``move``, without the command
line.
May import: fleet.
Start reading: ``changing.py`` for a changed plan, ``succession.py`` for the next campaign.
"""
