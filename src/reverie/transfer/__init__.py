"""Memories in and out: export, import, backup, migration."""
