"""Hints of error messages: names of other libraries with their equivalents in rlx, and install commands of packages.

Imported only when an error is raised.
"""
