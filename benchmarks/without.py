"""Run a program that does not find some of the processor's instructions, in all its processes.

python benchmarks/without.py avx512 python benchmarks/decoding.py BUNDLE EXPORT --data
folder:multi30k:de-en
python benchmarks/without.py vnni python benchmarks/processor_time.py BUNDLE EXPORT

"avx512" hides VNNI, AMX, bfloat16 and AVX-512, so that libraries take their kernels for AVX2;
"vnni" hides all of these but AVX-512. This requires Linux, a C compiler and a processor that can
trap CPUID (`processors.c`); without that, the status is 99. A table that is made this way is of the
processor at hand, with its clock and its memory: a processor that has AVX2 only may be slower or
faster.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engines.report import LEFT
from processors import build, environment


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program, and exit with its status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("hidden", choices=LEFT, help="instructions to hide")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    options = parser.parse_args(arguments)
    if not options.command:
        parser.error("command: expected a program to run, got none")
    with tempfile.TemporaryDirectory() as folder:
        status = subprocess.run(
            options.command, env=environment(build(Path(folder)), options.hidden)
        ).returncode
    sys.exit(status)


if __name__ == "__main__":
    main()
