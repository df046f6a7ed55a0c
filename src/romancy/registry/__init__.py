"""The workflows that an app knows, and what is made of one: a new instance, a run of a stored one, the source that is kept."""
