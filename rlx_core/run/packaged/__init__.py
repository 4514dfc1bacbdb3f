"""Execution plans as data in packages: what every target writes and reads in the same way."""
