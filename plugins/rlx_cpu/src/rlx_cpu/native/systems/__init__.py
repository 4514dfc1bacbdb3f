"""Dense linear systems of a few unknowns as native code."""
