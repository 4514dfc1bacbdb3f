"""What is said of a whole model: its variants at several sizes, what it takes and gives, and where its weights lie.

This layer reads modules and graphs; nothing that compiles or runs them needs it.
"""
