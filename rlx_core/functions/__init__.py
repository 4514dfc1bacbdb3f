"""Transformations of functions: derivatives (also custom ones), batching, loops and choices, recomputation, callbacks into
Python, training steps. All of them are traced into ops and graphs; lower layers do not depend on this package.
"""
