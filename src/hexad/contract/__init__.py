"""What is a trajectory, and when may it be trained on?"""
