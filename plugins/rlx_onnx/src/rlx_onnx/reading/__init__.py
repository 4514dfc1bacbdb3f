"""Import of model files: the model is checked, converted to one version of every operation, and walked."""
