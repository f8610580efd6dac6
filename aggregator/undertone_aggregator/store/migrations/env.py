"""Alembic's entry point: it runs the revisions on the given connection and in its transaction."""

from alembic import context

from undertone_aggregator.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
