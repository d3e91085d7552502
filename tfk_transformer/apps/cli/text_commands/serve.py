"""`tfk-transformer serve`."""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import SecretStr

from tfk_transformer.apps.cli.arguments import (
    Model,
    Settings,
    check_input_files,
    check_settings,
    named_value,
    option,
    prepare,
)
from tfk_transformer.apps.cli.record_options import field_option, with_options
from tfk_transformer.apps.server.settings import ADDRESS, BATCHES, TRANSLATION, ServerSettings
from tfk_transformer.runtime_environment import usable_processors

API_KEY = "TFK_TRANSFORMER_API_KEY"  # the environment variable
EXAMPLES = """
tfk-transformer serve numbers-files/translate.onnx --port 8501
# Accept requests from other machines if they carry the key in the file.
tfk-transformer serve numbers --host 0.0.0.0 --api-key-file key.txt
"""
SERVER_OPTIONS = {
    name: field_option(name, field)
    for name, field in ServerSettings.model_fields.items()
    if field.json_schema_extra  # the command derives the other fields
}


@with_options(SERVER_OPTIONS)
def command(
    model: Model,
    host: Annotated[str, option(ADDRESS, metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[int, option(ADDRESS, metavar="N", min=0, max=65535)] = 8501,
    api_key_file: Annotated[Path | None, option(ADDRESS, metavar="FILE")] = None,
    beam_size: Annotated[int | None, option(TRANSLATION, metavar="N")] = None,
    setting: Settings = None,
    threads: Annotated[int | None, option(BATCHES, metavar="N")] = None,
    *,
    overrides: dict[str, Any],
) -> None:
    """Serve MODEL over HTTP with three protocols: the REST API of TensorFlow Serving,
    LibreTranslate and the Open Inference Protocol.

    The server's page /docs describes all paths, and docs/serving.md describes the protocols.
    Requires the extra `serve`.

    Args:
        host: The address to listen on. 0.0.0.0: all addresses of this machine.
        port: The port. 0: any free port. The first line of the log contains the port.
        api_key_file: A file with the API key that requests must carry. Default: the environment
            variable TFK_TRANSFORMER_API_KEY.
        beam_size: The beam size of requests that do not set it.
        threads: Number of threads per batch, for an ONNX file. Default: the number of processors,
            divided by --workers.
    """
    from tfk_transformer.export.to_saved_model.serving import newest_version

    check_input_files(api_key_file=api_key_file)
    search = dict(named_value(text, "--setting", "length_penalty=1") for text in setting or [])
    search |= {} if beam_size is None else {"beam_size": beam_size}
    check_settings(model, search)
    newest = newest_version(model)
    settings = ServerSettings(
        version=newest.name if newest else "1",
        search=search,
        api_key=_api_key(api_key_file),
        **overrides,
    )
    # Imported first, so that a missing package of [serve] is reported before the model is loaded.
    from tfk_transformer.apps.server.running import serve

    prepare(model)
    from tfk_transformer.export.runtime.opening import load, model_kind

    default = None
    if model_kind(model) == "ONNX":
        default = max(1, usable_processors() // settings.workers)
    serve(load(model, threads=threads or default), settings, host, port)


def _api_key(file: Path | None) -> Any:
    """Return the API key of the file or of the environment variable, or None without one."""
    if file is None and API_KEY not in os.environ:
        return None
    key = (file.read_text(encoding="utf-8") if file else os.environ[API_KEY]).strip()
    if not key:
        raise ValueError(
            f"{'--api-key-file' if file else API_KEY}: expected an API key, got blank text; set a "
            "key, or serve without one."
        )
    return SecretStr(key)
