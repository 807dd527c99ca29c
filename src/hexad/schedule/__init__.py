"""When is experience consumed?"""
