"""The proxy for OpenAI's clients."""
