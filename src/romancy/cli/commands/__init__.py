"""The commands of `romancy`, a module each or for each family."""
