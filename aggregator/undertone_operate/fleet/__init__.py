"""Fleet: makes a server's folder and the files of its devices; keeps names, credentials and groups of the devices.

Owns the layout of a device's folder, the private authority, the inventory's changes, join codes, readers.
May import: nothing.
Start reading: ``initialise.py`` for a server's folder, ``device_files.py`` for one device's files, ``devices.py`` for
a fleet that changes while it reports.
"""
