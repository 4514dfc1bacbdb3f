"""JAX's primitives in rlx: one function per primitive or family of primitives, one file per subject."""
