"""Ops found in what people write instead of them: softmax, norms, GELU and attention, from traced arithmetic."""
