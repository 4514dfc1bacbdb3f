"""The OpenCL driver: PyOpenCL with any OpenCL implementation, and OpenCL C."""
