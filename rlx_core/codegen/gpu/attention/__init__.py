"""Attention in tiles of scores, in every language; `codegen.gpu.units` has the forms on matrix units.

score_tiles    tiles of scores and what becomes of them, for the passes
forward        results, and the sums that the gradient reads again
backward       gradients of queries, keys and values
"""
