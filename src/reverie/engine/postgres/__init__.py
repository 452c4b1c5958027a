"""PostgreSQL's own part of the engine."""
