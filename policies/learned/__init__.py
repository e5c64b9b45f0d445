"""Learned policies: action choice, the network, its ONNX file and the runner."""
