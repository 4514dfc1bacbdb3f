"""JAX functions for rlx (`from_jax`), and rlx functions inside `jax.jit`."""
