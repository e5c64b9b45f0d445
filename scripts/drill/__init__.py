"""Running drills: documents found and checked, run on a target, and reported."""
