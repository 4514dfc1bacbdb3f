"""Attention in tiles of scores, in every language; `codegen.gpu.units` has the forms on matrix units.

score_tiles    tiles of scores and what becomes of them, for the passes
forward        results
cotangents     what all passes of the gradients agree upon: workspaces, statistics, what becomes of one score
backward       gradients of queries, keys and values
"""
