"""Reading and writing at indices: `gather`, and `scatter` with `chains` for sums; `indexed` makes an index safe."""
