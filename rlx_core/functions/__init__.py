"""What users apply to functions beside the transformations: loops and choices, derivatives of their own, values that are computed
again, calls back into Python, training steps. All of it is traced into ops; no part below knows it.
"""
