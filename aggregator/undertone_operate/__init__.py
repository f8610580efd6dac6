"""Operators' tools around a running server: set it up, make and manage its devices, examine it, recount reports.

Owns ``undertone init``, ``devices``, ``join``, ``readers``, ``doctor`` and ``recount``, without the
command line.
May import: undertone_aggregator, undertone_device, undertone_shared.
Start reading: ``initialise.py`` for a server's folder, ``provision.py`` for a fleet's files, ``joining.py`` for
devices that join by a code.
"""
