"""Where do tasks and observations come from?"""
