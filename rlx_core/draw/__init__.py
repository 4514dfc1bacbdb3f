"""What people see of programs: pictures, the pages of notebooks, summaries, differences, and every level of a plan as text.

This layer reads graphs, plans and reports, and changes none. What a notebook asks of them is registered in `pages.py`, which is
loaded when the first is shown: no layer below knows how anything is drawn.
"""
