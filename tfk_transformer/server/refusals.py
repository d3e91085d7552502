"""Requests that are refused: a status, and one line with the reason and the remedy."""

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from tfk_transformer.server.answers import answer


class RequestError(Exception):
    """A request that the server does not serve.

    Args:
        status: the HTTP status.
        reason: one line: what was expected, what came, the remedy.
        headers: of the answer.
    """

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(status, reason)
        self.status, self.reason = status, reason
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def answer(self) -> Response:
        """Return the answer, {"error": reason}."""
        return answer({"error": self.reason}, self.status, self.headers)


# What Starlette itself refuses.
_REASONS = {
    404: (
        "path: expected one of those that /openapi.json lists, got another; correct the URL and "
        "the name of the model."
    ),
    405: "method: expected one that the header Allow names, got another; correct it.",
}


async def of_refusal(request: Request, error: Exception) -> Response:
    """Answer a `RequestError`."""
    assert isinstance(error, RequestError)
    return error.answer()


async def of_http(request: Request, error: Exception) -> Response:
    """Answer an error of Starlette."""
    assert isinstance(error, HTTPException)
    reason = _REASONS.get(
        error.status_code,
        f"request: expected one that can be served, got an error: {error.detail}; correct it.",
    )
    return answer({"error": reason}, error.status_code, error.headers or {})


def of_failure() -> Response:
    """Answer an error of the server. The message of an exception may contain texts, so it does not
    leave the server.
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
