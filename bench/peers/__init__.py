"""Other memories, each installed into an environment of its own and measured in its own process."""
