"""Tests: each states the law it checks in one sentence."""
