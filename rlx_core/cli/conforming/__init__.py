"""What `rlx conform` tries, and its levels."""
