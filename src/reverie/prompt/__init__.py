"""What a model is given: the profile, the context of a turn, and text made safe to show."""
