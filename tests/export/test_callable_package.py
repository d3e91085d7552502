"""`tfk_transformer.export` is a package and a function; each form of import in a fresh process."""

import inspect
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tfk_transformer
from tfk_transformer.export import exporting, formats, parity

REPOSITORY = Path(__file__).parents[2]
HEAVY = {"tensorflow", "keras", "numpy", "pydantic"}
# Each ends with `export`, the object to call.
IMPORTS = {
    "attribute": "import tfk_transformer\nexport = tfk_transformer.export",
    "name": "from tfk_transformer import export",
    "package": "import tfk_transformer.export\nexport = tfk_transformer.export",
    "module first": (
        "import tfk_transformer.export.file_names as names\nassert names.PARITY_FILE\nfrom "
        "tfk_transformer import export"
    ),
    "module after": "from tfk_transformer import export\nimport tfk_transformer.export.formats",
}


@pytest.mark.parametrize("code", IMPORTS.values(), ids=IMPORTS)
def test_export_is_callable_package(code):
    code += f"""
import sys, types
assert isinstance(export, types.ModuleType) and callable(export)
assert export.__name__ == "tfk_transformer.export"
assert export is sys.modules["tfk_transformer.export"]
assert not {HEAVY} & set(sys.modules), {HEAVY} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_export_refuses_other_objects(tmp_path):
    with pytest.raises(
        ValueError,
        match=(
            "^fitted: expected a Translator or a TextClassifier, got int; open a bundle with "
            r"tfk_transformer.load, or wrap a model as Translator\(model\).$"
        ),
    ):
        tfk_transformer.export(7, tmp_path / "out")


def test_heavy_submodules_still_import():
    import tfk_transformer.inference.signatures as signatures
    from tfk_transformer.export.exporting import export

    assert tfk_transformer.inference.signatures is signatures
    assert tfk_transformer.export is not export
    assert callable(tfk_transformer.export)
    assert tfk_transformer.ParityError.__module__ == "tfk_transformer.export.parity"


def test_export_help_shows_signature():
    parameters, expected = (
        inspect.signature(function).parameters.values()
        for function in (tfk_transformer.export, exporting.export)
    )
    assert [(p.name, p.kind, p.default) for p in parameters] == [
        (p.name, p.kind, p.default) for p in expected
    ]
    shown = ", ".join(
        p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters
    )
    assert f"tfk_transformer.export({shown})" in " ".join(tfk_transformer.export.__doc__.split())


USE = """
import tfk_transformer
from tfk_transformer import Translator, export
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
import tfk_transformer.inference.signatures as s

translator = Translator.load("bundle")
figures = tfk_transformer.export(translator, "out")
export(translator, "out", formats=["onnx"])
print(figures["sentences"], s.TEXT.name, OnnxTranslator)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The package as it is installed: `export/` inside."""
    folder = tmp_path_factory.mktemp("sources")
    shutil.copytree(REPOSITORY / "tfk_transformer", folder / "tfk_transformer")
    shutil.copytree(REPOSITORY / "export", folder / "tfk_transformer" / "export")
    return folder


WRONG = {
    "export(7, 'out')": (
        'Argument 1 to "export" has incompatible type "int"; expected "Translator | TextClassifier"'
    ),
    "tfk_transformer.export(translator, 7)": 'Argument 2 to "export" has incompatible type "int"',
    "export(translator)": 'Missing positional argument "out"',
    "export(translator, 'out', format=['onnx'])": 'Unexpected keyword argument "format"',
}


@pytest.fixture(scope="module")
def type_errors(sources):
    """Errors of mypy in right and wrong uses, by line number; one run takes seconds."""
    pytest.importorskip("mypy", reason="types are checked with mypy: pip install mypy")
    (sources / "use.py").write_text("\n".join([USE.rstrip(), *WRONG, ""]))
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        REPOSITORY / "pyproject.toml",
        "--follow-imports=silent",
        "use.py",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=sources,
        env={**os.environ, "PYTHONPATH": str(sources)},
    )
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert errors, done.stdout + done.stderr
    return {int(line.split(":")[1]): line for line in errors}


def test_types_accept_right_arguments(type_errors):
    assert min(type_errors) > len(USE.rstrip().splitlines())
    assert len(type_errors) == len(WRONG)


@pytest.mark.parametrize("use", WRONG)
def test_types_reject_wrong_arguments(type_errors, use):
    line = len(USE.rstrip().splitlines()) + list(WRONG).index(use) + 1
    assert WRONG[use] in type_errors[line]


# What is refused before any work is done.


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["tflite", "onnx"],
            (
                "^formats: expected some of saved_model, onnx, onnx_steps, .*, web, web_int8, got "
                "tflite.$"
            ),
        ),
        ([], "^formats: expected some of .*, got none.$"),
        ("onnx", r"^formats: expected a list of names, got the string 'onnx'; write \['onnx'\].$"),
    ],
)
def test_bad_formats_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        formats.check_formats(names)


def test_unwritable_path_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    formats.check_out(tmp_path / "new" / "newer")
    for out, message in (
        (
            tmp_path,
            "^out: expected a new folder, got .*, which exists; choose another name or remove it.$",
        ),
        (
            tmp_path / "file" / "out",
            (
                "^out: expected a path inside a folder, got .*out, but .*file is a file; choose "
                "another path.$"
            ),
        ),
    ):
        with pytest.raises(ValueError, match=message):
            formats.check_out(out)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_read_only_folder_is_refused(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(ValueError, match="closed is not writable; choose another path"):
        formats.check_out(tmp_path / "closed" / "out")


def test_every_format_has_a_writer():
    from tfk_transformer.export.to_web import web_files

    for name in set(formats.TRANSLATOR_FORMATS) - set(formats.WEB_SOURCES):
        assert callable(formats.load_writer(name))
    for name in formats.CLASSIFIER_FORMATS:
        assert callable(formats.load_writer(name, is_classifier=True))
    sources = set(formats.WEB_SOURCES.values())
    assert sources == set(web_files.SEARCH_FILES) < set(formats.TRANSLATOR_FORMATS)
    groups = (formats.OWN_LAYER_FORMATS, formats.INT8_FORMATS, formats.LIBRARY_FORMATS)
    assert sorted(itertools.chain(*groups)) == sorted(formats.TRANSLATOR_FORMATS)
    assert formats.DEFAULT_TRANSLATOR_FORMATS == ("saved_model", "onnx", "onnx_steps")
    assert formats.CLASSIFIER_FORMATS == ("saved_model", "onnx")


def test_parity_error_is_value_error():
    assert tfk_transformer.ParityError is parity.ParityError
    assert issubclass(parity.ParityError, ValueError)
