"""Reads a run and names the axis that fails: rules over its curves, and probes of its episodes."""
