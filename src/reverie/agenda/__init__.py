"""The agenda: durable jobs, and the worker that runs them when they are due."""
