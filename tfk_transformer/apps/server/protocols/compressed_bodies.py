"""Request bodies that are compressed."""

import zlib

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tfk_transformer.apps.server.bodies import read_body
from tfk_transformer.apps.server.settings import ServerSettings

WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}  # by content encoding


async def read_decompressed_body(request: Request, settings: ServerSettings) -> bytes:
    """Return the body of a request, without its compression.

    The limit of a body holds before and after decompression.

    Raises:
        HTTPException: 400 if the body is not compressed as `Content-Encoding` says, 413 if it is
            too large, 415 for other encodings. See also `read_body`.
    """
    body = await read_body(request, settings, tuple(WINDOW_BITS))
    encoding = request.headers.get("content-encoding", "").strip().lower()
    return _decompress(body, encoding, settings.max_body) if encoding in WINDOW_BITS else body


def _decompress(body: bytes, encoding: str, max_size: int) -> bytes:
    decompressor = zlib.decompressobj(WINDOW_BITS[encoding])
    try:
        content = decompressor.decompress(body, max_size + 1)
    except zlib.error:
        raise _not_compressed(encoding) from None
    if len(content) > max_size:
        raise HTTPException(
            413,
            f"body: expected at most {max_size} bytes after decompression, got more; send fewer "
            "texts at a time.",
        )
    if not decompressor.eof or decompressor.unused_data:
        raise _not_compressed(encoding)
    return content


def _not_compressed(encoding: str) -> HTTPException:
    return HTTPException(
        400,
        f"body: expected {encoding} data, as Content-Encoding says, got other or incomplete data; "
        "correct the body or the header.",
    )
