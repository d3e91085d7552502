"""The Java and C# programs print what the Python program prints.

The folder that the environment variable `TFK_TRANSFORMER_ONNXRUNTIME` names has onnxruntime's jar
and `libortextensions.so`, the library of onnxruntime-extensions for other languages. .NET takes
both from its own packages.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
MODEL = Path(__file__).parents[1] / "saved_files" / "translate.onnx"
TEXTS = ["seven", "forty-two", "\ufb01ve"]
FOLDER = os.environ.get("TFK_TRANSFORMER_ONNXRUNTIME")
PACKAGES = Path.home() / ".nuget" / "packages" / "microsoft.ml.onnxruntime"


def printed(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def expected():
    lines = printed(sys.executable, SCRIPTS / "onnx_translate.py", MODEL, *TEXTS)
    assert lines[:3] == ["seven", "-1.506\tsieben", "-3.194\tsieeben"]
    assert len(lines) == 3 * len(TEXTS)
    return lines


@pytest.mark.skipif(not shutil.which("javac"), reason="Java's compiler is not installed")
@pytest.mark.skipif(not FOLDER, reason="TFK_TRANSFORMER_ONNXRUNTIME names no folder")
def test_java_prints_the_same(expected):
    java = ("java", "-cp", f"{FOLDER}/*", SCRIPTS / "OnnxTranslate.java")
    assert printed(*java, MODEL, f"{FOLDER}/libortextensions.so", *TEXTS) == expected


@pytest.mark.skipif(not shutil.which("dotnet"), reason=".NET is not installed")
@pytest.mark.skipif(not PACKAGES.is_dir(), reason=f"no onnxruntime in {PACKAGES}")
def test_csharp_prints_the_same(expected):
    csharp = ("dotnet", "run", SCRIPTS / "OnnxTranslate.cs", "--")
    assert printed(*csharp, MODEL, *TEXTS) == expected
