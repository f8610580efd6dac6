"""What operators do around a running server: set it up, provision devices, look after a fleet, examine, recount.

Owns ``undertone init``, ``provision``, ``devices``, ``doctor`` and ``recount``, without the command line.
May import: undertone_aggregator, undertone_device, undertone_shared.
Start reading: ``initialise.py`` for a server's folder, ``provision.py`` for a fleet's files.
"""
