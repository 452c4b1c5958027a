"""Secrets in text: how they are recognized."""
