"""What does an outcome say, and is the signal trustworthy?"""
