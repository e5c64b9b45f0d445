"""Learned policies: what they choose, the network, its ONNX file and what runs it."""
