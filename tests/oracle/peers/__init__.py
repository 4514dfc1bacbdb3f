"""rlx beside PyTorch and JAX: a table of functions that they share, and what is asked of each row."""
