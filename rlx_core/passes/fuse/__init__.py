"""Several ops as one, for targets that have a kernel for it; and regions taken apart again for those that have none."""
