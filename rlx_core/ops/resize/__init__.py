"""Resizing of spatial axes: the nearest cell, or linear or cubic interpolation."""
