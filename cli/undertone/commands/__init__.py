"""The commands, one module each, with a function ``register(app)`` that adds the command to the Typer application."""
