"""The errors of HTTP requests: one class for each reason; callers see its name as `error_type`.

    HTTPProblem
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

They describe requests and not the engine, so they are not in `romancy.errors`. The errors of the app keep their own names.
"""

from __future__ import annotations


class HTTPProblem(Exception):
    """A request that is refused; the message is a sentence for the caller."""

    status = 400
    retryable = False


class MalformedRequestError(HTTPProblem):
    """The request is not valid."""


class MalformedEventError(MalformedRequestError):
    """The headers and the body are not a valid CloudEvent."""


class UnauthenticatedError(HTTPProblem):
    """The request carries no valid credentials."""

    status = 401


class ForbiddenError(HTTPProblem):
    """The caller does not have the access that the request needs."""

    status = 403


class NotFoundError(HTTPProblem):
    """There is nothing at this path."""

    status = 404


class MethodNotAllowedError(HTTPProblem):
    """The path does not support this method."""

    status = 405


class RequestTimeoutError(HTTPProblem):
    """The body did not arrive in time."""

    status = 408
    retryable = True


class BodyTooLargeError(HTTPProblem):
    """The body is larger than the limit."""

    status = 413


class UnsupportedContentTypeError(HTTPProblem):
    """The content type or its charset is not supported."""

    status = 415


class HeadTooLargeError(HTTPProblem):
    """The address and the headers are larger than the limit."""

    status = 431


class UnavailableError(HTTPProblem):
    """The request cannot be served at the moment; the caller can try again."""

    status = 503
    retryable = True
