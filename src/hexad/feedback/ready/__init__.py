"""Ready verifiers: each judges in a process of its own, within limits that kill."""
