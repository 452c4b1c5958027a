"""One write path: checks, transactions that append to the log, and what follows from an entry."""
