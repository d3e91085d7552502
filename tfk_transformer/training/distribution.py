"""The devices that train one model together: several devices of a machine, or of several
processes.
"""

import contextlib
import ipaddress
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence

import keras
import numpy as np

from tfk_transformer.data.batch_records import Share

ADDRESS, COUNT, NUMBER = (
    f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
)
SLURM = "SLURM_STEP_NODELIST"
# JAX's own variable: where process 0 listens, if not at the address that the others connect to.
BIND = "JAX_COORDINATOR_BIND_ADDRESS"
SILENCE = 30  # seconds without a sign of life after which a process counts as dead
LOST = "another process of this training has ended, or cannot be reached"


class Team:
    """Devices that train one model: each computes its rows of every batch, and all have the same
    weights.

    This class is for a single device; `gather` returns an instance of the right class.

    Args:
        devices: total number of devices.
    """

    process, processes = 0, 1
    # Whether gradients must be summed over the devices before they are clipped.
    exact_clipping = False

    def __init__(self, devices: int = 1):
        self.devices = devices

    @property
    def leads(self) -> bool:
        """Whether this process writes files and reports lines."""
        return self.process == 0

    @property
    def share(self) -> Share:
        """The rows of a batch that this process reads."""
        return Share(self.process, self.processes, self.devices)

    def scope(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which variables that are made or restored belong to all devices."""
        return contextlib.nullcontext()

    def fitting(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for `fit`."""
        return contextlib.nullcontext()

    def apart(self) -> contextlib.AbstractContextManager[None]:
        """Return a context, within the others, in which variables belong only to this process."""
        return contextlib.nullcontext()

    def in_turn(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that the processes enter one after the other."""
        return contextlib.nullcontext()

    def of_first(self, content: bytes) -> bytes:
        """Return the content that process 0 passed."""
        return content

    def greatest(self, numbers: Sequence[int]) -> list[int]:
        """Return the maximum of each number over all processes."""
        return list(numbers)

    def check_same(self, **facts: object) -> None:
        """Refuse to train if a fact differs between processes."""

    def finish(self) -> None:
        """Wait until all processes have called this."""

    def explained(self, error: Exception) -> Exception:
        """Return the error for the user, which is another one if the loss of a process caused
        `error`.
        """
        return error


class MirroredTeam(Team):
    """Devices of one machine under `tf.distribute.MirroredStrategy`."""

    exact_clipping = True

    def __init__(self, names: Sequence[str]):
        import tensorflow as tf

        super().__init__(len(names))
        self._strategy = tf.distribute.MirroredStrategy(names)

    def scope(self) -> contextlib.AbstractContextManager[None]:
        """Make variables that every device has."""
        return self._strategy.scope()


class ParallelTeam(Team):
    """Devices under the JAX backend, of this process or of several."""

    def __init__(self, count: int):
        import jax

        super().__init__(count)
        self.process, self.processes = jax.process_index(), jax.process_count()
        names = keras.distribution.list_devices()[:count]
        self._distribution = keras.distribution.DataParallel(
            devices=names, auto_shard_dataset=False
        )

    def scope(self) -> contextlib.AbstractContextManager[None]:
        """Make variables that every device has."""
        return self._distribution.scope()

    def fitting(self) -> contextlib.AbstractContextManager[None]:
        """Split batches over the devices."""
        return self._distribution.scope()

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Make variables of this process."""
        former = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(former)

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let the processes before this one go first."""
        for _ in range(self.process):
            self._meet()
        yield
        for _ in range(self.process, self.processes):
            self._meet()

    def of_first(self, content: bytes) -> bytes:
        """Send the content of process 0 to all processes."""
        size = self.greatest([len(content) if self.leads else 0])[0]
        array = np.zeros(size, np.uint8)
        array[: len(content) if self.leads else 0] = (
            np.frombuffer(content, np.uint8) if self.leads else 0
        )
        return self._gathered(array)[0].tobytes()

    def greatest(self, numbers: Sequence[int]) -> list[int]:
        """Gather the numbers of all processes."""
        return [int(number) for number in self._gathered(np.array(numbers, np.int32)).max(axis=0)]

    def check_same(self, **facts: object) -> None:
        """Compare the facts with those of process 0.

        Raises:
            ValueError: with the names of the facts that differ.
        """
        own = "\n".join(f"{name}={value}" for name, value in facts.items())
        first = self.of_first(own.encode()).decode()
        differing = [
            name
            for name, mine, theirs in zip(facts, own.split("\n"), first.split("\n"), strict=True)
            if mine != theirs
        ]
        if any(self.greatest([len(differing)])):
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
        """Wait for the others, without a time limit."""
        self._meet()

    def explained(self, error: Exception) -> Exception:
        """Return a `ConnectionError` if the message of `error` is about the connection to another
        process, otherwise `error`.
        """
        signs = ("gloo", "nccl", "coordination", "connection", "socket", "peer")
        if self.processes > 1 and any(sign in str(error).lower() for sign in signs):
            return ConnectionError(f"{LOST} ({str(error).splitlines()[0][:200]})")
        return error

    def _meet(self) -> None:
        self.greatest([0])

    def _gathered(self, array: np.ndarray) -> np.ndarray:
        """Return the arrays of all processes, stacked along a new first axis."""
        if self.processes == 1:
            return array[None]
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(array)).reshape(
            self.processes, *array.shape
        )


def gather(devices: int | None = None, distributed: bool = False) -> Team:
    """Return the devices to train on, after connecting to the other processes if there are any.

    Args:
        devices: number of devices of this machine. None: all GPUs, or all CPU devices; there is one
            CPU device unless TensorFlow or JAX was configured otherwise.
        distributed: whether other processes take part. Environment variables name them:
            KERAS_DISTRIBUTION_JOB_ADDRESSES, KERAS_DISTRIBUTION_NUM_PROCESSES and
            KERAS_DISTRIBUTION_PROCESS_ID, or those of Slurm.

    Raises:
        ValueError: if there are fewer devices, if the backend does not support several processes,
            or if the environment variables are missing or invalid.
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
    if backend == "tensorflow":
        return _tensorflow_team(devices)
    _checked(devices, 1, backend)
    return Team()


def is_first() -> bool:
    """Return whether this process is the only one, or process 0 of several."""
    if keras.backend.backend() != "jax":
        return True
    import jax

    return jax.process_index() == 0


@contextlib.contextmanager
def watched(team: Team, advice: str) -> Iterator[None]:
    """Print a line even if JAX ends this process, after which no Python code runs.

    A shell process waits for a word at the end of a pipe. If the pipe breaks before the word came,
    the shell prints the line.

    Args:
        team: the devices that train. With a single process, nothing is done.
        advice: the end of the line, which names the remedy.
    """
    if team.processes == 1:
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

    address, count, number = meeting_point()
    known: dict[str, str | int] = (
        {"coordinator_address": address, "num_processes": count, "process_id": number}
        if address
        else {}
    )
    if address and number == 0:
        known["coordinator_bind_address"] = listening_address(address)
    try:
        # This is what `keras.distribution.initialize` does, which has no timeouts and lets JAX
        # listen on every interface.
        jax.distributed.initialize(
            **known,
            cluster_detection_method="deactivate" if known else "slurm",
            heartbeat_timeout_seconds=SILENCE,
            shutdown_timeout_seconds=SILENCE,
        )
    except RuntimeError as error:
        raise ValueError(
            f"distributed: the processes did not meet at {address or 'the first node of Slurm'}: "
            f"{error}"
        ) from None


def meeting_point() -> tuple[str | None, int, int]:
    """Return the address of process 0, the number of processes and the number of this one; the
    address is None if Slurm provides it.
    """
    given = {name: os.environ.get(name, "") for name in (ADDRESS, COUNT, NUMBER)}
    if not any(given.values()) and SLURM in os.environ:
        return None, 0, 0
    if missing := [name for name, value in given.items() if not value]:
        raise ValueError(
            f"distributed: expected {', '.join(given)} in the environment, or Slurm's variables, "
            f"got no {', '.join(missing)}."
        )
    address = given[ADDRESS].split(",")[0].strip()
    count, number = (
        int(given[name]) if given[name].isdecimal() else -1 for name in (COUNT, NUMBER)
    )
    if not address.rpartition(":")[0] or not address.rpartition(":")[2].isdecimal():
        raise ValueError(f"{ADDRESS}: expected HOST:PORT of process 0, got '{given[ADDRESS]}'.")
    if count < 1:
        raise ValueError(f"{COUNT}: expected how many processes there are, got '{given[COUNT]}'.")
    if not 0 <= number < count:
        raise ValueError(
            f"{NUMBER}: expected a number from 0 to {count - 1}, got '{given[NUMBER]}'."
        )
    return address, count, number


def listening_address(address: str) -> str:
    """Return the address at which process 0 listens: `address`, unless JAX's variable names
    another.

    Args:
        address: HOST:PORT at which the other processes connect to process 0.

    Raises:
        ValueError: if HOST is not an address of this machine, or a name that only this machine can
            reach.
    """
    if given := os.environ.get(BIND):
        return given
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    remedy = (
        f"give the address of a network interface of process 0, or set {BIND}=[::]:{port} "
        "there to listen on every interface"
    )
    found = _addresses(host)
    if not any(map(_can_listen, found)):
        raise ValueError(
            f"{ADDRESS}: expected an address of process 0, got '{host}' "
            f"({', '.join(found) or 'unknown host'}); {remedy}."
        )
    if _is_name(host) and all(ipaddress.ip_address(ip).is_loopback for ip in found):
        raise ValueError(
            f"{ADDRESS}: expected a name that other machines reach, got '{host}', which is "
            f"{found[0]} on process 0; {remedy}."
        )
    return address


def _addresses(host: str) -> list[str]:
    """Return the IP addresses of a host; none if its name is unknown."""
    try:
        return sorted(
            {
                str(entry[4][0]).partition("%")[0]
                for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            }
        )
    except OSError:
        return []


def _can_listen(ip: str) -> bool:
    """Return whether this machine has the address."""
    with socket.socket(
        socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM
    ) as tried:
        try:
            tried.bind((ip, 0))
        except OSError:
            return False
    return True


def _is_name(host: str) -> bool:
    """Return whether `host` is neither an IP address nor `localhost`."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host != "localhost"
    return False


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
        return ParallelTeam(jax.device_count())
    count = _checked(devices, jax.local_device_count(), jax.default_backend())
    return ParallelTeam(count) if count > 1 else Team()


def _tensorflow_team(devices: int | None) -> Team:
    import tensorflow as tf

    names = [
        device.name
        for device in tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    ]
    count = _checked(devices, len(names), names[0].split(":")[1].lower())
    return MirroredTeam(names[:count]) if count > 1 else Team()


def _checked(wanted: int | None, there: int, kind: str) -> int:
    if wanted is not None and not 1 <= wanted <= there:
        raise ValueError(
            f"devices: expected from 1 to {there}, as there {'is' if there == 1 else 'are'} "
            f"{there} of kind {kind}, got {wanted}."
        )
    return wanted or there
