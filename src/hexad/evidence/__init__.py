"""Can the result be believed?"""
