"""Learning without a model: what a person states outright, in their own words."""
