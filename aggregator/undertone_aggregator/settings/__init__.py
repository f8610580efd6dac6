"""Settings: the configuration files, parsed and checked, each option defined once.

Owns every option of ``server.toml`` and of a campaign's plan, the sample that is printed, the file of groups.
May import: base, counts, design, estimate, store.
Start reading: ``options.py`` for how an option is defined, ``config.py`` for the options.
"""
