"""The operator's work: verify, rebuild, salvage, and the handlers of jobs."""
