"""Encodes values, calls and failures as bytes, and decodes them.

    payload             ValueCodec, CallCodec: values of annotated types, as JSON
      schema              builds a writer and a reader for an annotation
      unions              tags for unions whose choices look alike in JSON
      round_trip          finds what a value would lose when it is written and read back
      signature           the parameters and the result type of a function
    equivalence         compares recorded payloads with those of the code now
    messaging           events and messages, in the JSON format of CloudEvents
      external            JSON from outside, as a value or as the arguments of a call
    failure             exceptions: the same type, message and attributes, or an ActivityError
      exception_state     reads and restores an exception without calling its __init__
      tagged              values without annotations, as JSON with tags
      class_lookup        classes by name

A value is decoded right after it is encoded, and user code gets the decoded value. So a live run and a replay see the same.

May import `core.matcher`, `model` and the packages below it. It reads no clock, writes no log and uses no database; it only
reads the tracebacks of failures and the classes that records name.
"""

from romancy.serde.failure import FailureInfo, decode_failure, describe_failure, encode_failure, is_terminal
from romancy.serde.payload import CallCodec, ValueCodec, result_codec
from romancy.serde.tagged import decode_data, encode_data

__all__ = [
    "CallCodec",
    "FailureInfo",
    "ValueCodec",
    "decode_data",
    "decode_failure",
    "describe_failure",
    "encode_data",
    "encode_failure",
    "is_terminal",
    "result_codec",
]
