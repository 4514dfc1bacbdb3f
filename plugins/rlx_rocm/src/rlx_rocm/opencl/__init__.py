"""The road by OpenCL: PyOpenCL, any driver of it, and OpenCL C."""
