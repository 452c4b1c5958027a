"""The store as Markdown files in a git repository, which people may edit."""
