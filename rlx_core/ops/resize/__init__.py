"""Resizing of spatial axes: the nearest cell, or cells around a place weighted by a line or a cubic."""
