"""Several devices and several processes train as one does. Every run is the real command in
separate processes.
"""

import importlib.util
import ipaddress
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from xla_flags import FAST_COMPILATION

from tfk_transformer.training import distribution

needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed: pip install -e .[jax]"
)
# TensorFlow is not there.
COMMAND = """
import sys
for name in ("tensorflow", "tensorflow_text", "tensorflow_datasets", "tf2onnx"):
    sys.modules[name] = None
from tfk_transformer.apps.cli.main import main
sys.argv[0] = "tfk-transformer"
main()
"""
EPOCHS, SENT_AFTER, TIMEOUT = 6, 2, 240
COORDINATOR = "127.0.0.1"
# One length alone, or XLA compiles for long; no dropout, whose draws depend on how many rows fill a
# batch up.
OPTIONS = (
    "--preset tiny --option encoder_layers=1 --option decoder_layers=1 --option model_dim=16 "
    "--option ff_dim=24 --dropout 0 "
    "--tokenizer char --vocab-size 40 --max-length 8 --batch-tokens 83 --learning-rate 3e-3 "
    "--warmup-steps 20 "
    f"--ema 0.9 --average 2 --epoch-steps 25 --epochs {EPOCHS}"
).split()


class Run:
    """A training: one process, or several that meet; after an epoch, one of them may be sent a
    signal.
    """

    def __init__(
        self,
        folder: Path,
        out: str,
        *more: str,
        processes: int = 1,
        to: int = 0,
        sent=None,
        slurm=False,
        last=(),
        **environment,
    ):
        self.out = folder / out
        data = [
            f"{folder}/{split}.{side}" for split in ("train", "validation") for side in ("a", "b")
        ]
        specs = [
            "--data",
            f"files:{data[0]},{data[1]}",
            "--validation-data",
            f"files:{data[2]},{data[3]}",
        ]
        arguments = [
            "train",
            *specs,
            *OPTIONS,
            "--out",
            str(self.out),
            *more,
            *(["--distributed"] if processes > 1 else []),
        ]
        shared = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONUNBUFFERED": "1"}
        shared |= compiled_once(folder / "compiled") | environment
        variables_of_each = (slurm_variables if slurm else own_variables)(processes)
        self.port = int(variables_of_each[0].get(distribution.ADDRESS, ":0").rpartition(":")[2])
        self.processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    COMMAND,
                    *arguments,
                    *(last if number == processes - 1 else ()),
                ],
                env={**shared, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number, variables in enumerate(variables_of_each)
        ]
        self.lines, self.listening = [], []
        self.listener = threading.Thread(target=self._listen, args=(to, sent))
        self.listener.start()

    def _listen(self, to, sent) -> None:
        """Keep what process 0 says, and send the signal when it is time."""
        for line in self.processes[0].stdout:
            self.lines.append(line)
            if line.startswith("epoch 1/"):
                self.listening = [listening_sockets(process.pid) for process in self.processes]
            if sent and line.startswith(f"epoch {SENT_AFTER}/"):
                self.processes[to].send_signal(sent)
                self.sent = time.monotonic()

    def wait(self) -> list[tuple[int, str, str]]:
        """Return status, output and errors of each."""
        self.listener.join(TIMEOUT)
        texts = [
            [own_lines(text) for text in process.communicate(timeout=TIMEOUT)]
            for process in self.processes
        ]
        texts[0][0] = own_lines("".join(self.lines))
        return [
            (process.returncode, *both) for process, both in zip(self.processes, texts, strict=True)
        ]

    def end(self) -> None:
        """Leave nothing running."""
        for process in self.processes:
            process.kill()
        self.listener.join()
        for process in self.processes:
            process.communicate()

    def losses(self, resumed: bool = False) -> np.ndarray:
        """Return training and validation loss of each epoch, after a training that went well."""
        for number, (status, output, errors) in enumerate(self.wait()):
            assert status == 0, output + errors
            assert ("resumed after epoch" in output) == (resumed and number == 0)
            assert bool(output) == (number == 0)
        history = json.loads((self.out / "history.json").read_text())
        return np.array([history["loss"], history["val_loss"]])


def compiled_once(folder: Path) -> dict[str, str]:
    """Return variables that make XLA compile fast, and each program once for all runs.

    Otherwise compilation takes two thirds of the processor time of a training.
    """
    return {
        "XLA_FLAGS": FAST_COMPILATION,
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def own_lines(text: str) -> str:
    """Leave out what the library beneath writes."""
    return "".join(line for line in text.splitlines(True) if not line.startswith("[Gloo]"))


def own_variables(processes: int) -> list[dict]:
    """Name the processes as the documentation says; nothing where there is one."""
    if processes == 1:
        return [{}]
    shared = {
        distribution.ADDRESS: f"{COORDINATOR}:{free_port()}",
        distribution.NUM_PROCESSES: str(processes),
    }
    return [{**shared, distribution.PROCESS_ID: str(number)} for number in range(processes)]


def slurm_variables(processes: int) -> list[dict]:
    """Name them as Slurm does on a node; JAX makes the port of the job's number."""
    shared = {
        "SLURM_JOB_ID": str(random.randrange(4096)),
        distribution.SLURM: "127.0.0.1",
        "SLURM_STEP_NUM_NODES": "1",
    }
    shared["SLURM_NTASKS"] = str(processes)
    return [
        {**shared, "SLURM_PROCID": str(number), "SLURM_LOCALID": str(number)}
        for number in range(processes)
    ]


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def listening_sockets(pid: int) -> set[tuple[str, int]]:
    """Return the addresses and ports at which a process accepts TCP connections, as Linux lists
    them.
    """
    links = (
        [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
        if Path("/proc/net/tcp").is_file()
        else []
    )
    own = {match[1] for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", link))}
    actual = set()
    for family in ("tcp", "tcp6") if own else ():
        for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and inode in own:
                address, port = local.split(":")
                actual.add((plain_address(address), int(port, 16)))
    return actual


def plain_address(words: str) -> str:
    """Return an address of /proc, which writes each 32 bits in the byte order of the machine."""
    parts = np.frombuffer(bytes.fromhex(words), ">u4").astype("=u4").tobytes()
    address = ipaddress.ip_address(parts)
    return str(getattr(address, "ipv4_mapped", None) or address)


def write_pairs(folder: Path) -> None:
    draws = np.random.default_rng(0)
    for split, count in (("train", 211), ("validation", 31)):
        texts = ["".join(draws.choice(list("abcdefg"), draws.integers(2, 7))) for _ in range(count)]
        (folder / f"{split}.a").write_text("".join(f"{text}\n" for text in texts))
        (folder / f"{split}.b").write_text("".join(f"{text[::-1]}\n" for text in texts))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("joint")
    write_pairs(path)
    return path


@pytest.fixture(scope="module")
def start(folder):
    """A function that starts a training, which ends with the tests of this module at the latest."""
    started = []

    def start(name, *more, **options):
        started.append(Run(folder, name, *more, **options))
        return started[-1]

    yield start
    for run in started:
        run.end()


def cache_of(folder, name):
    return ["--cache", str(folder / f"cache of {name}")]


@pytest.fixture(scope="module")
def alone(start, folder):
    """The losses of one process with one device."""
    return start("one", *cache_of(folder, "one")).losses()


@pytest.fixture(scope="module")
def two(start, folder, alone):
    """A training of two processes, the first of which is killed."""
    return start("two", *cache_of(folder, "two"), processes=2, sent=signal.SIGKILL)


@needs_jax
def test_jax_learns_without_tensorflow(alone):
    assert alone.shape == (2, EPOCHS)
    assert alone[0, -1] < 0.8 * alone[0, 0]


# Trains in several processes, each of which takes five seconds or more.
@pytest.mark.long
@needs_jax
def test_killed_first_process_resumes(
    two,
    start,
    alone,
    folder,
):
    run = two
    (killed, *_), (status, output, errors) = run.wait()
    assert time.monotonic() - run.sent < 2 * distribution.HEARTBEAT_TIMEOUT
    assert killed == -signal.SIGKILL
    assert status != 0
    assert output == ""
    assert distribution.LOST in errors
    assert f"{run.out}.training holds the state after the last whole epoch" in errors
    assert "start all processes again with --resume" in errors
    again = start("two", "--resume", *cache_of(folder, "two"), processes=2)
    np.testing.assert_allclose(again.losses(resumed=True), alone, rtol=1e-5)
    assert not Path(f"{run.out}.training").exists()


@pytest.mark.long  # reads what the training of the test above did
@needs_jax
@pytest.mark.skipif(
    not Path("/proc/net/tcp").is_file(),
    reason="/proc/net/tcp, where Linux lists sockets, is missing",
)
def test_coordinator_binds_one_address(two):
    """By default JAX's coordinator listens at `::`, every address of the machine."""
    two.wait()
    coordinator = {address for address, port in two.listening[0] if port == two.port}
    assert coordinator == {COORDINATOR}
    assert "::" not in {address for sockets in two.listening for address, _ in sockets}


# Trains in several processes, each of which takes five seconds or more.
@pytest.mark.long
@needs_jax
def test_one_process_resumes_three(
    start,
    alone,
    folder,
):
    run = start("three", *cache_of(folder, "three"), processes=3, to=1, sent=signal.SIGKILL)
    ends = run.wait()
    assert time.monotonic() - run.sent < 2 * distribution.HEARTBEAT_TIMEOUT
    assert ends[1][0] == -signal.SIGKILL
    for status, _, errors in ends[:1] + ends[2:]:
        assert status != 0
        assert distribution.LOST in errors
    again = start("three", "--resume", *cache_of(folder, "three"))
    np.testing.assert_allclose(again.losses(resumed=True), alone, rtol=1e-5)


# Trains in several processes, each of which takes five seconds or more.
@pytest.mark.long
@needs_jax
def test_signal_stops_both_processes(start):
    run = start("stopped", processes=2, to=1, sent=signal.SIGTERM, slurm=True)
    (first, output, errors), (second, nothing, _) = run.wait()
    assert (first, second) == (130, 130), errors
    assert output.splitlines()[-1].startswith(
        f"stopped by SIGTERM: {run.out} holds the model so far"
    )
    assert nothing == ""
    assert len(json.loads((run.out / "history.json").read_text())["loss"]) >= SENT_AFTER


# Two processes import JAX.
@pytest.mark.long
@needs_jax
def test_different_recipes_are_refused(start):
    run = start("different", processes=2, last=("--learning-rate", "1e-3"))
    (first, _, errors), (second, _, more_errors) = run.wait()
    assert (first, second) == (1, 1)
    assert (
        "got something else: another process reports what differs; start all with the same"
        in errors
    )
    assert "got something else: process 1 differs in recipe; start all with the same" in more_errors
    assert not run.out.exists()


@pytest.mark.long  # a training each
@needs_jax
@pytest.mark.parametrize("devices", [1, 2])
def test_devices_train_from_cache_alone(
    start,
    alone,
    folder,
    devices,
):
    """The texts are elsewhere by now."""
    moved = [
        path.rename(path.with_suffix(".moved" + path.suffix)) for path in folder.glob("*.[ab]")
    ]
    try:
        chosen = [*cache_of(folder, "one"), "--devices", str(devices)]
        flags = f"{FAST_COMPILATION} --xla_force_host_platform_device_count=2"
        run = start(f"devices {devices}", *chosen, XLA_FLAGS=flags)
        np.testing.assert_allclose(run.losses(), alone, rtol=1e-5)
    finally:
        for path in moved:
            path.rename(str(path).replace(".moved", ""))


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {},
            (
                "distributed: expected .*JOB_ADDRESSES, .* in the environment, or Slurm's "
                "variables, "
                "got no KERAS_.*ADDRESSES"
            ),
        ),
        ({"ADDRESS": "a:1", "PROCESS_ID": "0"}, "got no KERAS_DISTRIBUTION_NUM_PROCESSES."),
        (
            {"ADDRESS": "host", "NUM_PROCESSES": "2", "PROCESS_ID": "0"},
            "KERAS_DISTRIBUTION_JOB_ADDRESSES: expected HOST:PORT of process 0, got 'host'",
        ),
        (
            {"ADDRESS": "a:1", "NUM_PROCESSES": "two", "PROCESS_ID": "0"},
            "NUM_PROCESSES: expected how many processes there are, got 'two'",
        ),
        (
            {"ADDRESS": "a:1,b:1", "NUM_PROCESSES": "2", "PROCESS_ID": "2"},
            "PROCESS_ID: expected a number from 0 to 1, got '2'",
        ),
    ],
)
def test_missing_variables_are_named(monkeypatch, variables, message):
    for name in ("ADDRESS", "NUM_PROCESSES", "PROCESS_ID"):
        monkeypatch.delenv(getattr(distribution, name), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(getattr(distribution, name), value)
    with pytest.raises(ValueError, match=message):
        distribution.coordinator_settings()


needs_ipv6 = pytest.mark.skipif(
    not distribution._can_listen("::1"), reason="this machine has no IPv6"
)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:7", "localhost:7", "0.0.0.0:7", pytest.param("[::1]:7", marks=needs_ipv6)],
)
def test_process_0_listens_at_address(monkeypatch, address):
    monkeypatch.delenv(distribution.BIND, raising=False)
    assert distribution.listening_address(address) == address


def test_bind_variable_sets_address(monkeypatch):
    monkeypatch.setenv(distribution.BIND, "[::]:7")
    assert distribution.listening_address("192.0.2.1:7") == "[::]:7"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "192.0.2.1:7",  # an address of RFC 5737, which no machine has
            r"_JOB_ADDRESSES: expected an address of process 0, got '192\.0\.2\.1' "
            r"\(192\.0\.2\.1\); "
            r"give the address .*, or set JAX_COORDINATOR_BIND_ADDRESS=\[::\]:7 there to listen on "
            r"every interface",
        ),
        ("nowhere.invalid:7", r"got 'nowhere\.invalid' \(unknown host\)"),
    ],
)
def test_foreign_address_is_refused(monkeypatch, address, message):
    monkeypatch.delenv(distribution.BIND, raising=False)
    with pytest.raises(ValueError, match=message):
        distribution.listening_address(address)


def test_loopback_name_is_refused(monkeypatch):
    """As the own name of a machine whose /etc/hosts gives it 127.0.1.1. The C library reads 127.1
    as a short form of 127.0.0.1.
    """
    monkeypatch.delenv(distribution.BIND, raising=False)
    with pytest.raises(
        ValueError,
        match=(
            r"expected a name that other machines reach, got '127\.1', which is 127\.0\.0\.1 on "
            r"process 0; give"
        ),
    ):
        distribution.listening_address("127.1:7")


def test_slurm_sets_coordinator(monkeypatch):
    monkeypatch.setenv(distribution.SLURM, "node[001-003]")
    assert distribution.coordinator_settings()[0] is None


def test_distribution_needs_jax():
    import keras

    backend = keras.backend.backend()
    with pytest.raises(
        ValueError,
        match=f"distributed: expected the JAX backend, got {backend}; set KERAS_BACKEND=jax",
    ):
        distribution.gather(distributed=True)


def test_too_many_devices_are_refused():
    with pytest.raises(
        ValueError, match=r"devices: expected from 1 to 1, as there is 1 of kind cpu, got 2\."
    ):
        distribution.gather(2)
