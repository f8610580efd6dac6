"""Settings: the configuration files, parsed and checked, with one definition of each option.

Owns every option of ``server.toml`` and of a campaign's plan, the printed sample, the groups file.
May import: base, counts, design, estimate, store.
Start reading: ``options.py`` for how an option is defined, ``config.py`` for the options.
"""
