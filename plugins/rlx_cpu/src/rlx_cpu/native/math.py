"""The f32 functions as vector code."""
