"""Kill each writing command at random moments, and repeat it until it succeeds: the output must
equal the output of a run that was never killed, and nothing else may be left.

Run: python scripts/kill_commands.py NEW_FOLDER KILLS [COMMAND…]
"""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tfk_transformer.formats.output_file import content_digest

TESTS = Path(__file__).parents[1] / "tests"
sys.path.append(str(TESTS))
from marian_folder import write_folder  # noqa: E402

SAVED = TESTS / "saved_files"
DATA = f"--data=files:{SAVED / 'en.txt'},{SAVED / 'de.txt'}"
STUDENT = [DATA, *"--preset tiny --vocab-size 60 --epochs 3 --deterministic --resume".split()]
VARIES = ("metrics.json", "history.json", "curve.png", "recipe.toml")  # times, names of folders


def files(folder: Path) -> dict[Path, str]:
    """Return the hash of each file below a folder, hidden ones included, if it does not vary."""
    paths = [path for path in folder.rglob("*") if path.name not in VARIES and path.is_file()]
    return {path.relative_to(folder): content_digest(path) for path in paths}


folder = Path(sys.argv[1]).absolute()
folder.mkdir(parents=True)
write_folder(folder / "marian")
commands: dict[str, list[str | Path]] = {
    "new": [],
    "import": [folder / "marian", "--out"],
    "ensemble": [SAVED / "bundle", SAVED / "bundle", "--out"],
    "export": [SAVED / "bundle", "--format", "onnx", "--out"],
    "train": [*STUDENT, "--out"],
    "distill": [SAVED / "translate.onnx", *STUDENT, "--out"],
}
for name in sys.argv[3:] or commands:
    command = [sys.executable, "-m", "tfk_transformer", name, *commands[name]]
    whole, killed = (folder / name / part for part in ("whole", "killed"))
    begun = time.monotonic()
    subprocess.run([*command, whole / "out"], check=True)
    seconds = time.monotonic() - begun
    for _ in range(int(sys.argv[2])):
        kill = ["timeout", "-s", "KILL", str(random.uniform(0, seconds))]
        subprocess.run([*kill, *command, killed / "out"])
        if "--resume" not in command:  # it may have ended in time
            shutil.rmtree(killed / "out", ignore_errors=True)
    subprocess.run([*command, killed / "out"], check=True)
    changed = {str(path) for path, _ in files(whole).items() ^ files(killed).items()}
    print(f"{name} ({seconds:.0f} s), different: {changed or 'nothing'}", flush=True)
