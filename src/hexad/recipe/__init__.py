"""What did the user decide? Imports without torch."""
