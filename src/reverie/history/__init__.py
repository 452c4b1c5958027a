"""Chat histories that clients send again, matched with what is stored."""
