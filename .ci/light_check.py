"""Check the light install that runs this: its size, that TensorFlow is absent, and its command."""

import importlib.util
import subprocess
import sys
import sysconfig

MEGABYTES = 210  # onnxruntime 1.32 takes 82 of them
VENV = ("pip", "setuptools", "pkg_resources")  # in every environment
TEXTS = ["forty-two", "one hundred seven"]


def output(*command: str) -> str:
    """Return the output of a command, which writes nothing to standard error."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "", done
    return done.stdout


library = sysconfig.get_path("purelib")
without = [f"--exclude={name}" for name in VENV]
size = int(output("du", "-s", "--block-size=MB", *without, library).split("MB")[0])
assert importlib.util.find_spec("tensorflow") is None
assert size <= MEGABYTES, size
program = f"{sys.prefix}/bin/tfk-transformer"
found = output(program, "translate", "tests/saved_files/translate.onnx", *TEXTS).splitlines()
assert len(found) == len(TEXTS), found
print(f"Python {sys.version.split()[0]}: {size} MB; {TEXTS[0]} -> {found[0]}")
