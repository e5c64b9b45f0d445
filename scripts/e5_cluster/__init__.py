"""E5 on a cluster: FaultDrills under every policy of one RoutePolicy, measured and reported as elsewhere."""
