"""Move memories in and out of a store: export, import, backup, replay of a log, migration."""
