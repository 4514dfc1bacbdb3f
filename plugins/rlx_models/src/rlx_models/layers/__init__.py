"""Layers that several architectures share: records of settings with the shapes of their tensors and the function of them."""
