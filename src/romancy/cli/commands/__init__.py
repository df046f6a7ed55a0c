"""The commands of `romancy`: one module for each command, or for a few similar ones."""
