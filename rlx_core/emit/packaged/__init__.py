"""Programs of devices in packages: their launches, sources, what a driver's compiler made of those, and weights, as data."""
