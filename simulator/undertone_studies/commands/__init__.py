"""The commands ``undertone bench`` and ``undertone experiment``, available in a clone and not in an installed wheel."""
