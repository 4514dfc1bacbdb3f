"""Order and running reductions along the lines of an array.

template             what structured templates write with
keys                 elements as keys in registers
sorting, extremes    sorted lines, and where the extreme of a line is
searching            places in sorted lines
scan_rules, scans    what running reductions carry and how they join; their text
"""
