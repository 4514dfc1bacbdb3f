"""What users apply to functions: transformations, loops and choices, derivatives of their own, values that are computed again,
calls back into Python, training steps. All of it is traced into ops and graphs; no part below knows it.
"""
