"""Tests: each says the law it checks in one sentence."""
