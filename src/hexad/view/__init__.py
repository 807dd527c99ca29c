"""Shows a run: one page to keep, or a local site that follows it, down to one token."""
