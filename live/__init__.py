"""The live world: real engines on this machine, measured and served.

May use every layer below; never `simulator`. torch, transformers and vLLM are imported inside the
functions that need them, so that the package imports where only the core is installed.
"""
