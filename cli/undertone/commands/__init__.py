"""One module per command; each has a function ``register(app)`` that adds it to the Typer application."""
