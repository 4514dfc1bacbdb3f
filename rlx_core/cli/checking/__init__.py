"""What `rlx check` and `rlx doctor` look at."""
