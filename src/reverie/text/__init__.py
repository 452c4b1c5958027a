"""What is done to text before it is stored, indexed or shown: pure functions, no I/O."""
