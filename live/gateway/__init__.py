"""The gateway: routing plans as acknowledged Envoy configuration, and Envoy's counters."""
