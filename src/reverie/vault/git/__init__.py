"""The git repository of a vault: commits, history, and removal of erased content."""
