"""Fused operations."""
