"""Code that runs inside a vLLM server that measures its own distance from a reference.

The files are staged as the package ``selvage_kld`` (``live.kld.stage``) and import only each other, the
standard library, torch and vllm. vLLM loads them by its own entry points if ``VLLM_PLUGINS`` names them;
requests are answered only if the environment enables it as well (``gate``).
"""
