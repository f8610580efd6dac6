"""What a PC does for boards and services: compile, flash, install. CPython only."""
