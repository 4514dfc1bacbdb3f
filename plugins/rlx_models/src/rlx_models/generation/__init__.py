"""Pretrained models: generation."""
