"""rlx: an ML compiler and runtime whose ops, passes and devices are all plugins."""
