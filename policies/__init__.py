"""Who proposes: fixed, breaker, threshold, hysteresis. A policy is pure; its memory is named arrays.

May use `controller` and `contracts`; knows no world.
"""
