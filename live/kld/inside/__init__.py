"""What runs inside a vLLM server that measures its own distance from a reference.

Stands alone there: these files are staged as the package ``selvage_kld`` (``live.kld.stage``) and import only
each other, the standard library, torch and vllm. vLLM loads them by its own entry points, where
``VLLM_PLUGINS`` names them; nothing answers unless the environment says so as well (``gate``).
"""
