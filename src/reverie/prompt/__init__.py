"""Parts of prompts: the profile, the context of a turn, recalled text, and their escaping."""
