"""Runs migrations on the connection that `pipeline.store.schema` hands over."""

from alembic import context

from pipeline.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
