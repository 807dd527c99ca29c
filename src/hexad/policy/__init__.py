"""Who acts, and with what exact probability?"""
