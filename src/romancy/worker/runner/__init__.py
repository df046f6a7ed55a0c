"""Runs one instance on this worker. `state.py` has the table of its states and inputs; start reading there.

state        the states, the inputs, and which input does what in which state
runner       `InstanceRunner`: handles the inputs
inbox        which items of the instance's inbox it has seen, consumed, or must read again
attempts     the attempts of activities and compensations, and those that are to start
waits        the waits and timers that the store has, and the store calls to make
transition   builds the transition to commit from all of that
message_ids  the ids of the events and messages that the instance sends
"""
