"""What Alembic runs for every command: on the connection that it is given, in one transaction."""

from __future__ import annotations

from alembic import context

from muniment_storage_postgres import agent_schema
from muniment_storage_postgres.layout import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=agent_schema.metadata,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
