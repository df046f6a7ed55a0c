"""The registry of an app's workflows, and what is made from one: new instances, executions, and the source to store."""
