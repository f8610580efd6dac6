"""What Alembic runs: the revisions, on the connection and in the transaction that it was given."""

from alembic import context

from undertone_aggregator.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
