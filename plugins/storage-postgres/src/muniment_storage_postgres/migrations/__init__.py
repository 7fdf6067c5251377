"""Alembic's environment and revisions; ``muniment_storage_postgres.migrate`` runs them."""
