"""Operations of `com.microsoft`, which are not part of ONNX: used by exporters and by ONNX Runtime's graph optimisations."""
