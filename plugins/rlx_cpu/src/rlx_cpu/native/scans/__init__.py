"""Walks along an axis that keep something on the way: running reductions (`cumulative`), positions of extremes (`positions`)."""
