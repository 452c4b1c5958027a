"""Recognises secrets (passwords, keys, tokens) in text, and redacts them."""
