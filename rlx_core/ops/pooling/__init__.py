"""Pooling: one number for every window of the spatial axes of `[n, c, ..]`, and the positions of extremes."""
