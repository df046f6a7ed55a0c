"""The workflows that an app knows, and what is made of one: new instances, runs of stored ones, the stored source."""
