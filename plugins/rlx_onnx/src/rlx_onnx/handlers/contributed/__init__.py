"""Operations of `com.microsoft`, which are none of ONNX's own: what exporters write, and what ONNX Runtime makes of graphs."""
