"""When requests arrive and how long they are."""
