"""Pretrained models: architectures."""
