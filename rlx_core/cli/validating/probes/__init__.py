"""The steps: generators of rows, each given the device under test and a word."""
