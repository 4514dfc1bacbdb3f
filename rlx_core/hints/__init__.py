"""What is read when something is not found: names that people know from elsewhere, and what to type to install a package.

Nothing here is imported by a program that makes no mistake.
"""
