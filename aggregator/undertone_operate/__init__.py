"""Operators' tools around a running server: set it up, make and manage its devices, examine it, recount reports.

Owns what such commands do, without the command line: for example ``init``, ``devices``, ``join``, ``doctor``,
``backup``, ``recount``, and ``campaign`` with ``apply``, ``extend`` or ``succeed``.
May import: undertone_aggregator, undertone_device, undertone_shared.
Start reading: ``fleet/`` makes a server's folder and its devices, ``changes/`` changes campaigns that run,
``backup/`` copies a whole folder, ``examine/`` finds what is wrong; ``join/`` is for devices that join by a code.
"""
