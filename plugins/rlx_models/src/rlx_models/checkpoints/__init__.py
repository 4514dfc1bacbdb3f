"""Pretrained models: checkpoints."""
