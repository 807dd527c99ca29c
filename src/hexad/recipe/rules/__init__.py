"""Rules across axes, by what they are about."""
