"""SQLite's own part of the engine."""
