"""Products and attention by matrix units.

matrix_units             the instructions, as a prelude spells them: NVIDIA's
simdgroup_matrices       Apple's
tiles, products          the products that the units compute, and their tile sizes; their text
warpgroup_matrices       the instructions of NVIDIA's warpgroups on factors in shared memory
warpgroup_products       the products for which those are profitable; their text
tiled_products           shared parts of both texts: loading of tiles, epilogues of sums
head_tiles, head_units   the supported attention problems and their tiles in shared memory; operations on them
online_softmax           scores and weights of a tile of keys at a time, in registers
attention                its text
attention_backward       the text of its cotangents
"""
