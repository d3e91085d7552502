"""The benchmark of gradients of weights, with few positions."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "weight_gradients.py"


# Nine shapes of matrices, of up to 16 million numbers.
@pytest.mark.long
def test_benchmark_times_both_ways():
    command = [sys.executable, BENCHMARK, "--positions", "20", "--repeats", "1"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"([\d,]+) × ([\d,]+) +│ ([\d.]+) +│ ([\d.]+) +│ [\d.]+ ×", done.stdout)
    assert len(rows) == 9
    assert rows[-1][:2] == ("32,768", "512")
    assert all(float(row[2]) > 0 < float(row[3]) for row in rows)
    assert "20 positions. Limit of oneDNN: AVX2. Processor:" in done.stdout
