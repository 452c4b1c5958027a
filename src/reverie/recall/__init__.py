"""Recall: finds the memories and events that answer a query, and ranks them."""
