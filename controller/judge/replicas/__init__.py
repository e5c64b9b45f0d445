"""Faulty replicas: attribution of the fault, ejection from rotation, and the return to it."""
