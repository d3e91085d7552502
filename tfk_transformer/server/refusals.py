"""Refused requests: a status, and one line with the reason and the remedy."""

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from tfk_transformer.server.answers import answer


class RequestError(Exception):
    """A request that the server does not serve.

    Args:
        status: the HTTP status.
        reason: one line: what was expected, what came, the remedy.
        **headers: the headers of the response, with _ for -.
    """

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def answer(self) -> Response:
        """Return the response, {"error": reason}."""
        return answer({"error": self.reason}, self.status, self.headers)


# For the errors that Starlette itself raises.
_REASONS = {
    404: (
        "path: expected one of those that /openapi.json lists, got another; correct the URL and "
        "the name of the model."
    ),
    405: "method: expected one that the header Allow names, got another; correct it.",
}


async def answer_request_error(request: Request, error: Exception) -> Response:
    """Answer a `RequestError`."""
    assert isinstance(error, RequestError)
    return error.answer()


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Answer an HTTP error of Starlette."""
    assert isinstance(error, HTTPException)
    reason = _REASONS.get(
        error.status_code,
        f"request: expected one that can be served, got an error: {error.detail}; correct it.",
    )
    return answer({"error": reason}, error.status_code, error.headers or {})


def answer_failure() -> Response:
    """Answer an error of the server.

    The message of the exception is not sent, since it may contain texts.
    """
    return answer(
        {
            "error": (
                "server: expected an answer of the model, got an error, which the server's "
                "log names; report it."
            )
        },
        500,
    )
