"""Hexad trains language-model agents from the training contract up."""

__version__ = "0.1.0"
