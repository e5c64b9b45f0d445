"""Routing policies: rules, a linear program, learned ones, and their training and certificates.

A policy is pure; its memory is named arrays. May use `controller` and `contracts`; knows no world.
"""

import os

#: onnxruntime tells its maker about each use from version 1.31 on, unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
