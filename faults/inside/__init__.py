"""What runs inside the processes of a vLLM server that was started for drills.

Stands alone there: these files are staged as the package ``selvage_inject`` (``faults.client.launch``) and
import only each other, the standard library, torch and vllm, whose own extension points they use: a worker
extension, a middleware and a logits processor. Nothing acts, and no endpoint answers, unless the server was
started for drills (``gate``); every fault ends by itself when its lease is not renewed (``lease``).
"""
