"""How does a batch become a step?"""
