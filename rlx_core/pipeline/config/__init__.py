"""Configuration: the settings of a compilation, the places where they can be set, and the trust in each of them.

The records are in `records.py`. `reading.py` merges files, variables and tables of the program, `structure.py` makes records of
them, `settings.py` lists the variables, `trust.py` refuses code that another user may have named, and `words.py` refuses words
that match no op.
"""
