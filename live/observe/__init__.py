"""What servers and the gateway export, as the telemetry record that the simulator fills as well."""
