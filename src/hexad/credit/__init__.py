"""Which decisions did the outcome come from? Pure functions."""
