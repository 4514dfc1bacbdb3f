"""Recognition of ops in traced arithmetic that composes them: softmax, norms, GELU and attention."""
