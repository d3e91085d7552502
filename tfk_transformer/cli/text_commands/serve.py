"""`tfk-transformer serve`."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.cli.arguments import (
    SEARCH,
    Model,
    Settings,
    check_input_files,
    check_settings,
    named_value,
    prepare,
)
from tfk_transformer.runtime_environment import usable_processors

API_KEY = "TFK_TRANSFORMER_API_KEY"  # the environment variable
# Titles of groups of options in the help.
ADDRESS, LIMITS, BATCHES = "Address and access", "Limits", "Batches"
EXAMPLES = """
tfk-transformer serve numbers-files/translate.onnx --port 8501
# Reachable from other machines, for requests that carry the key in the file.
tfk-transformer serve numbers --host 0.0.0.0 --api-key-file key.txt
"""


def _number(help: str, panel: str, metavar: str = "N", **options: Any) -> Any:
    return typer.Option(metavar=metavar, help=help, rich_help_panel=panel, **options)


def command(
    model: Model,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The model's name in URLs.", rich_help_panel=ADDRESS)
    ] = "translator",
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The address to listen at. 0.0.0.0: all addresses of this machine.",
            rich_help_panel=ADDRESS,
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        _number(
            "The port. 0: any free port, which the first line of the log names.",
            ADDRESS,
            min=0,
            max=65535,
        ),
    ] = 8501,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "A file with the API key that requests must carry. Default: the environment "
                f"variable {API_KEY}."
            ),
            rich_help_panel=ADDRESS,
        ),
    ] = None,
    source_language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help="The code of the language that the model reads, for /languages.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    target_language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help="The code of the language that the model writes.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    beam_size: Annotated[
        int | None, _number("The beam size of requests that give none.", SEARCH)
    ] = None,
    setting: Settings = None,
    max_batch: Annotated[
        int, _number("Maximum number of texts that are run together.", BATCHES)
    ] = 64,
    max_delay: Annotated[
        float,
        _number("Maximum number of milliseconds that a text waits for others.", BATCHES, "MS"),
    ] = 10,
    workers: Annotated[
        int | None,
        _number(
            (
                "Number of batches that run at the same time. Default: 1; the processors share a "
                "batch."
            ),
            BATCHES,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        _number(
            "Number of threads of each batch of an ONNX file. Default: the processors / workers.",
            BATCHES,
        ),
    ] = None,
    max_body: Annotated[
        int, _number("Maximum size of a request's body in bytes.", LIMITS, "BYTES")
    ] = 2**20,
    max_texts: Annotated[int, _number("Maximum number of texts of a request.", LIMITS)] = 256,
    max_characters: Annotated[
        int, _number("Maximum number of characters of a text.", LIMITS)
    ] = 5000,
    max_beam_size: Annotated[int, _number("Maximum beam size of a request.", LIMITS)] = 16,
    max_queue: Annotated[
        int, _number("Maximum number of texts that wait; further requests are refused.", LIMITS)
    ] = 2048,
    max_streams: Annotated[int, _number("Maximum number of streams at the same time.", LIMITS)] = 8,
    timeout: Annotated[float, _number("Seconds that an answer may take.", LIMITS, "SECONDS")] = 30,
    body_timeout: Annotated[
        float, _number("Seconds that a request's body may take to arrive.", LIMITS, "SECONDS")
    ] = 10,
    drain_delay: Annotated[
        float, _number("Minimum number of seconds between SIGTERM and the end.", LIMITS, "SECONDS")
    ] = 1,
) -> None:
    """Serve MODEL over HTTP: the REST interface of TensorFlow Serving, LibreTranslate's and the
    Open Inference Protocol.

    The page /docs of the server describes all paths, and docs/serving.md the protocols. Requires
    the extra `serve`.
    """
    from tfk_transformer.export.to_saved_model.serving import newest_version
    from tfk_transformer.server.settings import ServerSettings

    check_input_files(api_key_file=api_key_file)
    search = dict(named_value(text, "--setting", "length_penalty=1") for text in setting or [])
    search |= {} if beam_size is None else {"beam_size": beam_size}
    check_settings(model, search)
    newest = newest_version(model)
    settings = ServerSettings(
        name=name,
        version=newest.name if newest else "1",
        source_language=source_language,
        target_language=target_language,
        search=search,
        workers=workers or 1,
        max_batch=max_batch,
        max_delay=max_delay / 1000,
        max_body=max_body,
        max_texts=max_texts,
        max_characters=max_characters,
        max_beam_size=max_beam_size,
        max_queue=max_queue,
        max_streams=max_streams,
        timeout=timeout,
        body_timeout=body_timeout,
        drain_delay=drain_delay,
        api_key=_api_key(api_key_file),
    )
    # Imported first, so that a missing package of [serve] is reported before the model is loaded.
    from tfk_transformer.server.running import serve

    prepare(model)
    from tfk_transformer.export.runtime.opening import load

    is_onnx = model.suffix == ".onnx"
    default = max(1, usable_processors() // settings.workers) if is_onnx else None
    serve(load(model, threads=threads or default), settings, host, port)


def _api_key(file: Path | None) -> Any:
    """Return the API key, or None.

    Raises:
        ValueError: if the file or the environment variable is blank.
    """
    from pydantic import SecretStr

    if file is None and API_KEY not in os.environ:
        return None
    key = (file.read_text(encoding="utf-8") if file else os.environ[API_KEY]).strip()
    if not key:
        raise ValueError(
            f"{'--api-key-file' if file else API_KEY}: expected an API key, got a blank one; "
            "write one, or leave it out."
        )
    return SecretStr(key)
