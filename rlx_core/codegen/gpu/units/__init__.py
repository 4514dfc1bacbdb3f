"""Products and attention by matrix units.

matrix_units             the instructions, as a prelude spells them: NVIDIA's
simdgroup_matrices       Apple's
tiles, products          which products the units compute, in tiles of which sizes; their text
warpgroup_matrices       the instructions of NVIDIA's warpgroups on factors in shared memory
warpgroup_products       which products pay for those; their text
tiled_products           what both texts share: how tiles are brought, what becomes of sums
head_tiles, head_units   which attention they compute, its tiles in shared memory; what all its functions do with them
online_softmax           scores and weights of a tile of keys at a time, in registers
attention                its text
attention_backward       that of its cotangents
"""
