"""What is answered instead of 2xx: one class for each reason, which is the `error_type` that callers see.

    Problem
    ├── MalformedRequestError            400
    │   └── MalformedEventError          400
    ├── UnauthenticatedError             401
    ├── ForbiddenError                   403
    ├── NotFoundError                    404
    ├── MethodNotAllowedError            405
    ├── RequestTimeoutError              408
    ├── BodyTooLargeError                413
    ├── UnsupportedContentTypeError      415
    ├── HeadTooLargeError                431
    └── UnavailableError                 503

They never leave ingress, so they are not in `romancy.errors`. The errors of the app keep their own names.
"""

from __future__ import annotations


class HTTPProblem(Exception):
    """A request that cannot be done, said in a sentence."""

    status = 400
    retryable = False


class MalformedRequestError(HTTPProblem):
    """The body is not what it should be."""


class MalformedEventError(MalformedRequestError):
    """The body or the headers are no CloudEvent."""


class UnauthenticatedError(HTTPProblem):
    """Nobody knows who is calling."""

    status = 401


class ForbiddenError(HTTPProblem):
    """The caller may not do this."""

    status = 403


class NotFoundError(HTTPProblem):
    """There is nothing at this path."""

    status = 404


class MethodNotAllowedError(HTTPProblem):
    """There is something at this path, but not for this method."""

    status = 405


class RequestTimeoutError(HTTPProblem):
    """The body did not come in time."""

    status = 408
    retryable = True


class BodyTooLargeError(HTTPProblem):
    """The body is larger than what is read."""

    status = 413


class UnsupportedContentTypeError(HTTPProblem):
    """The content type or its charset is not known."""

    status = 415


class HeadTooLargeError(HTTPProblem):
    """The address and the headers are larger than what is read."""

    status = 431


class UnavailableError(HTTPProblem):
    """Not now: try again."""

    status = 503
    retryable = True
