"""Products and attention by matrix units.

matrix_units             the instructions, as a prelude spells them: NVIDIA's
simdgroup_matrices       Apple's
tiles, products          which products the units compute, in tiles of which sizes; their text
head_tiles, attention    which attention they compute, its tiles in shared memory; its text
"""
