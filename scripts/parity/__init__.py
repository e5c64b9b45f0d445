"""The same load in both worlds: recorded live, replayed in the simulator, calibrated, compared."""
