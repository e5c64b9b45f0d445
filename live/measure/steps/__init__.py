"""Engine step times: measured through a server, fitted, with their spread and agreement."""
