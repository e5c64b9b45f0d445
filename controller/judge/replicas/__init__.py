"""Which replicas are at fault, whose fault it is, who goes out of rotation and who comes back."""
