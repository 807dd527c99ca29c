"""Trackers: what shows the rows of a run elsewhere (Weights & Biases, trackio, TensorBoard)."""
