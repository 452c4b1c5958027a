"""Text processing before text is stored, indexed or shown: pure functions, no I/O."""
