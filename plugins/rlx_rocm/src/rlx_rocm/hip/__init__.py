"""The road by HIP: CuPy's build for ROCm, HIPRTC, and HIP C++; and what stands in for a GPU on it."""
