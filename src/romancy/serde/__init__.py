"""Values, calls and failures to bytes and back.

    payload     ValueCodec, CallCodec: values of annotated types, as JSON
      schema      how a type is written so that it can be read
      signature   what a function takes and gives
    talk        events and messages, in the JSON format of CloudEvents
      foreign     JSON that others wrote, read as they wrote it
    failure     exceptions: the same type, message and attributes, or an ActivityError
      rebuild     an exception without its __init__
      tagged      values without annotations, as JSON with tags
      classes     classes by name

A value is decoded as soon as it is encoded, and everybody sees the decoded one: live and replay cannot differ.

Of romancy it imports `model` and what stands below. No clock, no log, no database; a failure's traceback text and the
classes a record names are all it takes from outside.
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
