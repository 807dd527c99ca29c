"""How far may the policy move? Pure functions, and the one reducer."""
