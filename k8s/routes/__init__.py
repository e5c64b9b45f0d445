"""The HTTPRoute that a RoutePolicy owns: its rules from a routing table, and the writer."""
