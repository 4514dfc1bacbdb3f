"""From a file to a model: what is read is checked, brought to one version of every operation, and walked."""
