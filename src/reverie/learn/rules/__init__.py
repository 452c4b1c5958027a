"""Learning without a model: English patterns find what a person states about themselves."""
