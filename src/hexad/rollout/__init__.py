"""How do policy and environment meet?"""
