"""Pretrained models: layers."""
