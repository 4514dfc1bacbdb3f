"""The HIP driver: CuPy's build for ROCm, HIPRTC and HIP C++; and the stand-in for a GPU."""
