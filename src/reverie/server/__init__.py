"""The server: REST, a proxy for OpenAI's clients, MCP and a page, on one store."""
