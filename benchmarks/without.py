"""Run a program as on a processor with fewer instructions, in all its processes.

python benchmarks/without.py avx512 python benchmarks/decoding.py BUNDLE EXPORT …

"avx512" hides VNNI, AMX, bfloat16 and AVX-512, so that libraries take their kernels for AVX2;
"vnni" hides all of these but AVX-512. This requires Linux, a C compiler and a processor that can
trap CPUID (`processors.c`); without that, the status is 99. Figures are those of the processor at
hand, with its clock and its memory: a processor that has AVX2 only may be slower or faster.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CANNOT_TRAP = 99  # exit status
SOURCE = Path(__file__).with_name("processors.c")


def main() -> None:
    """Run the program, and exit with its status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("hidden", choices=["vnni", "avx512"], help="instructions to hide")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    options = parser.parse_args()
    if not options.command:
        parser.error("command: expected a program to run, got none")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "processors.so"
        compiler = ["cc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE]
        subprocess.run(compiler, check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), "HIDE": options.hidden}
        if subprocess.run(["true"], env=environment).returncode:
            print("without.py: expected a processor that can trap CPUID", file=sys.stderr)
            sys.exit(CANNOT_TRAP)
        status = subprocess.run(options.command, env=environment).returncode
    sys.exit(status)


if __name__ == "__main__":
    main()
