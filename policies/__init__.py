"""Routing policies: rules, a linear program, learned policies, and their training and certificates.

A policy is pure; its memory consists of named arrays. May use `controller` and `contracts`; does not depend
on any world.
"""

import os

#: From version 1.31 on, onnxruntime reports each use to its vendor unless this is set before its import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
