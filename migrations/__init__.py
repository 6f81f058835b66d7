"""The schema's history, by Alembic. The only place where tables change."""
