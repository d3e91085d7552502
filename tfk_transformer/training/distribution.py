"""The devices that train one model together, of one machine or of several processes."""

import contextlib
import ipaddress
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import keras
import numpy as np

from tfk_transformer.data.bucketing import Share

# Environment variables.
ADDRESS = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
NUM_PROCESSES = "KERAS_DISTRIBUTION_NUM_PROCESSES"
PROCESS_ID = "KERAS_DISTRIBUTION_PROCESS_ID"
SLURM = "SLURM_STEP_NODELIST"
BIND = "JAX_COORDINATOR_BIND_ADDRESS"  # where process 0 listens, if not at `ADDRESS`

HEARTBEAT_TIMEOUT = 30  # seconds after which a silent process counts as dead
Context: TypeAlias = Callable[[], contextlib.AbstractContextManager[None]]
LOST = "another process of this training has ended, or cannot be reached"


class Team:
    """Devices that train one model, of this process or of several; this one has a single device.

    All devices have the same weights, and each computes its rows of every batch.
    """

    def __init__(
        self,
        devices: int = 1,
        scope: Context = contextlib.nullcontext,
        fitting: Context = contextlib.nullcontext,
        process: int = 0,
        processes: int = 1,
        exact_clipping: bool = False,
    ):
        self.devices = devices  # of all processes
        self.scope = scope  # in its context, new and restored variables belong to all devices
        self.fitting = fitting  # `fit` runs in its context
        self.process, self.processes = process, processes
        self.leads = process == 0  # this process writes files and prints lines
        self.share = Share(process, processes, devices)  # the rows of a batch that it reads
        self.exact_clipping = exact_clipping  # sum gradients over the devices before clipping

    @contextlib.contextmanager
    def local_scope(self) -> Iterator[None]:
        """Let new variables belong only to this process, in a block inside `scope`."""
        former = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(former)

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let the processes run the block one after the other."""
        for _ in range(self.process):
            self.finish()
        yield
        for _ in range(self.process, self.processes):
            self.finish()

    def broadcast(self, content: bytes) -> bytes:
        """Return the content that process 0 passed."""
        sent = content if self.leads else b""
        size = self.maximum([len(sent)])[0]
        array = np.zeros(size, np.uint8)
        array[: len(sent)] = np.frombuffer(sent, np.uint8)
        return self._all_gather(array)[0].tobytes()

    def maximum(self, numbers: Sequence[int]) -> list[int]:
        """Return the maximum of each number over all processes."""
        return [int(number) for number in self._all_gather(np.array(numbers, np.int32)).max(axis=0)]

    def check_same(self, **facts: object) -> None:
        """Refuse to train if a fact differs from that of process 0."""
        text = "\n".join(f"{name}={value}" for name, value in facts.items())
        first = self.broadcast(text.encode()).decode()
        lines = zip(facts, text.split("\n"), first.split("\n"), strict=True)
        differing = [name for name, mine, theirs in lines if mine != theirs]
        if any(self.maximum([len(differing)])):
            where = (
                f"process {self.process} differs in {', '.join(differing)}"
                if differing
                else "another process reports what differs"
            )
            advice = "start all with the same recipe and options, and let all see the same files"
            raise ValueError(
                "distributed: expected the same in every process as in process 0, got something "
                f"else: {where}; {advice}."
            )

    def finish(self) -> None:
        """Wait until all processes have called this, without a time limit."""
        self.maximum([0])

    def explain(self, error: Exception) -> Exception:
        """Return `error`, or a `ConnectionError` if the loss of another process caused it."""
        signs = ("gloo", "nccl", "coordination", "connection", "socket", "peer")
        if self.processes > 1 and any(sign in str(error).lower() for sign in signs):
            return ConnectionError(f"{LOST} ({str(error).splitlines()[0][:200]})")
        return error

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        """Return the arrays of all processes, stacked along a new first axis."""
        if self.processes == 1:
            return array[None]
        from jax.experimental import multihost_utils

        arrays = np.asarray(multihost_utils.process_allgather(array))
        return arrays.reshape(self.processes, *array.shape)


def gather(devices: int | None = None, distributed: bool = False) -> Team:
    """Connect to the other processes, if any, and return the devices to train on.

    By default, these are all GPUs of the machine, or all CPU devices; usually there is one.
    """
    backend = keras.backend.backend()
    if distributed:
        if backend != "jax":
            raise ValueError(
                f"distributed: expected the JAX backend, got {backend}; set KERAS_BACKEND=jax for "
                "every process."
            )
        if devices is not None:
            raise ValueError(
                "devices: expected none beside distributed, got both; CUDA_VISIBLE_DEVICES "
                "selects the devices of a process."
            )
        _join()
    if backend == "jax":
        return _jax_team(devices)
    if backend != "tensorflow":
        _check_count(devices, 1, backend)
        return Team()
    import tensorflow as tf

    listed = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    count = _check_count(devices, len(listed), listed[0].device_type.lower())
    if count == 1:
        return Team()
    strategy = tf.distribute.MirroredStrategy([device.name for device in listed[:count]])
    return Team(count, strategy.scope, exact_clipping=True)


def is_first() -> bool:
    """Return whether this process is the only one, or process 0 of several."""
    if keras.backend.backend() != "jax":
        return True
    import jax

    return jax.process_index() == 0


@contextlib.contextmanager
def report_sudden_end(team: Team, advice: str) -> Iterator[None]:
    """Print an error even if JAX ends one of several processes, after which no Python code runs.

    If a pipe breaks before a word arrives, a shell process prints the error with `advice`. Without
    a shell, as on Windows, nothing is done.
    """
    if team.processes == 1 or shutil.which("sh") is None:
        yield
        return
    line = (
        f"error: process {team.process} of {team.processes} was ended: it was killed, or "
        f"{LOST}. {advice}"
    )
    script = 'read -r word || printf "%s\\n" "$1" >&2'
    watch = subprocess.Popen(
        ["sh", "-c", script, "watch", line], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    finally:  # Python reports errors itself
        watch.communicate(b"well\n")


def _join() -> None:
    """Connect to the processes that the environment names."""
    import jax

    address, count, number = coordinator_settings()
    options: dict[str, str | int] = {}
    if address:
        options = {"coordinator_address": address, "num_processes": count, "process_id": number}
        if number == 0:
            options["coordinator_bind_address"] = listening_address(address)
    try:
        # Not `keras.distribution.initialize`, which has no timeouts and listens on every interface.
        jax.distributed.initialize(
            **options,
            cluster_detection_method="deactivate" if options else "slurm",
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
            shutdown_timeout_seconds=HEARTBEAT_TIMEOUT,
        )
    except RuntimeError as error:
        raise ValueError(
            f"distributed: the processes did not meet at {address or 'the first node of Slurm'}: "
            f"{error}"
        ) from None


def coordinator_settings() -> tuple[str | None, int, int]:
    """Return the address of process 0 (None: of Slurm), the number of processes, and this one's."""
    variables = {name: os.environ.get(name, "") for name in (ADDRESS, NUM_PROCESSES, PROCESS_ID)}
    if not any(variables.values()) and SLURM in os.environ:
        return None, 0, 0
    if missing := [name for name, value in variables.items() if not value]:
        raise ValueError(
            f"distributed: expected {', '.join(variables)} in the environment, or Slurm's "
            f"variables, got no {', '.join(missing)}."
        )
    addresses, *texts = variables.values()
    address = addresses.split(",")[0].strip()
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{ADDRESS}: expected HOST:PORT of process 0, got '{addresses}'.")
    count, number = (int(text) if text.isdecimal() else -1 for text in texts)
    if count < 1:
        raise ValueError(
            f"{NUM_PROCESSES}: expected how many processes there are, got '{texts[0]}'."
        )
    if not 0 <= number < count:
        raise ValueError(
            f"{PROCESS_ID}: expected a number from 0 to {count - 1}, got '{texts[1]}'."
        )
    return address, count, number


def listening_address(address: str) -> str:
    """Return the address at which process 0 listens: JAX's variable if it is set, or `address`.

    The HOST of `address` must be an address of this machine, or a name that other machines reach.
    """
    if bind_address := os.environ.get(BIND):
        return bind_address
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    remedy = (
        f"give the address of a network interface of process 0, or set {BIND}=[::]:{port} "
        "there to listen on every interface"
    )
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:  # an unknown name
        entries = []
    addresses = sorted({str(entry[4][0]).partition("%")[0] for entry in entries})
    if not any(map(_can_listen, addresses)):
        raise ValueError(
            f"{ADDRESS}: expected an address of process 0, got '{host}' "
            f"({', '.join(addresses) or 'unknown host'}); {remedy}."
        )
    try:
        ipaddress.ip_address(host)
        is_name = False
    except ValueError:
        is_name = host != "localhost"
    if is_name and all(ipaddress.ip_address(ip).is_loopback for ip in addresses):
        raise ValueError(
            f"{ADDRESS}: expected a name that other machines reach, got '{host}', which is "
            f"{addresses[0]} on process 0; {remedy}."
        )
    return address


def _can_listen(ip: str) -> bool:
    """Return whether this machine has the address."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            listener.bind((ip, 0))
        except OSError:
            return False
    return True


def _jax_team(devices: int | None) -> Team:
    import jax

    if jax.process_count() > 1:
        if jax.device_count() != jax.process_count() * jax.local_device_count():
            raise ValueError(
                "distributed: expected as many devices in each process, got "
                f"{jax.local_device_count()} in process "
                f"{jax.process_index()} and {jax.device_count()} in all {jax.process_count()}; "
                "limit them with CUDA_VISIBLE_DEVICES."
            )
        count = jax.device_count()
    else:
        count = _check_count(devices, jax.local_device_count(), jax.default_backend())
        if count == 1:
            return Team()
    names = keras.distribution.list_devices()[:count]
    parallel = keras.distribution.DataParallel(devices=names, auto_shard_dataset=False)
    # In this scope, `fit` also splits the batches over the devices.
    return Team(count, parallel.scope, parallel.scope, jax.process_index(), jax.process_count())


def _check_count(requested: int | None, available: int, device_type: str) -> int:
    """Return the number of devices to use: the requested number, or by default all."""
    if requested is not None and not 1 <= requested <= available:
        raise ValueError(
            f"devices: expected from 1 to {available}, as there "
            f"{'is' if available == 1 else 'are'} {available} of kind {device_type}, got "
            f"{requested}."
        )
    return requested or available
