"""HTTPRoutes owned by a RoutePolicy: rules made from a routing table, and their writer."""
