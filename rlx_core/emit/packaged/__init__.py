"""Programs of devices in packages: their launches, sources, the binaries of a driver's compiler, and weights, as data."""
