"""Tests of OCI artefacts."""
