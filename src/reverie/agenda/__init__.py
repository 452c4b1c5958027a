"""What happens later: jobs, and the worker that runs them."""
