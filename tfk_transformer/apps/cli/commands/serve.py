"""`tfk-transformer serve`."""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import SecretStr

from tfk_transformer.apps.cli import arguments
from tfk_transformer.apps.cli.arguments import option
from tfk_transformer.apps.server.settings import ADDRESS, BATCHES, TRANSLATION, ServerSettings
from tfk_transformer.runtime_environment import usable_processors

API_KEY = "TFK_TRANSFORMER_API_KEY"  # the environment variable
SERVE_EXAMPLES = """
tfk-transformer serve numbers-files/translate.onnx --port 8501
# Accept requests from other machines if they carry the key in the file.
tfk-transformer serve numbers --host 0.0.0.0 --api-key-file key.txt
"""
SERVER_OPTIONS = {
    name: arguments.field_option(name, field)
    for name, field in ServerSettings.model_fields.items()
    if field.json_schema_extra  # the command derives the other fields
}


@arguments.with_options(SERVER_OPTIONS)
def serve_command(
    model: arguments.Model,
    host: Annotated[str, option(ADDRESS, metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[int, option(ADDRESS, metavar="N", min=0, max=65535)] = 8501,
    api_key_file: Annotated[Path | None, option(ADDRESS, metavar="FILE")] = None,
    beam_size: Annotated[int | None, option(TRANSLATION, metavar="N")] = None,
    setting: arguments.Settings = None,
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

    arguments.check_input_files(api_key_file=api_key_file)
    search = arguments.named_values(setting, "--setting", "length_penalty=1")
    search |= {} if beam_size is None else {"beam_size": beam_size}
    arguments.check_settings(model, search)
    newest = newest_version(model)
    version = newest.name if newest else "1"
    api_key = None
    if api_key_file or API_KEY in os.environ:
        text = api_key_file.read_text(encoding="utf-8") if api_key_file else os.environ[API_KEY]
        if not text.strip():
            raise ValueError(
                f"{'--api-key-file' if api_key_file else API_KEY}: expected an API key, got blank "
                "text; set a key, or serve without one."
            )
        api_key = SecretStr(text.strip())
    settings = ServerSettings(version=version, search=search, api_key=api_key, **overrides)
    # Imported first, so that a missing package of [serve] is reported before the model is loaded.
    from tfk_transformer.apps.server.running import serve

    arguments.prepare(model)
    from tfk_transformer.export.runtime.opening import load, model_kind

    default = None
    if model_kind(model) == "ONNX":
        default = max(1, usable_processors() // settings.workers)
    serve(load(model, threads=threads or default), settings, host, port)
