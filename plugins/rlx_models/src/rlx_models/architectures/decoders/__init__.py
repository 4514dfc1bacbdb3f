"""Decoders as data: a row of `table` for each architecture, and the layers, positions, experts and states that rows combine."""
