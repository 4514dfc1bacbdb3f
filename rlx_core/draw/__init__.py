"""Displays of programs: pictures, the pages of notebooks, summaries, differences, and every level of a plan as text.

This layer reads graphs, plans and reports, and changes none. The displays of notebooks are registered in `pages.py`, which is
imported when the first is shown: no lower layer depends on the drawing code.
"""
