"""Offline reinforcement learning and evaluation, from decision logs alone."""
