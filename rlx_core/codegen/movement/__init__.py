"""Movement as data: what ops that only move elements are in boxes, whatever moves them."""
