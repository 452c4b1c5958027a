"""The store as Markdown files in a git repository."""
