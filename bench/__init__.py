"""Measurements: what Reverie costs and finds, beside something known."""
