"""The gateway: routing plans as Envoy's configuration, acknowledged, and what Envoy counted."""
