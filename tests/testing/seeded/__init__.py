"""Ops, rules and kernels that are wrong in one way each, with the law that has to say so and what it says."""
