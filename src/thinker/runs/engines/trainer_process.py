"""A process of its own for the trainer of a world model.

Two threads of a Python process share one interpreter lock, which every operation of PyTorch gives back and takes again.
With networks as small as those for boards, acting and training would wait for each other most of the time. The process
is started with ``python -m thinker.runs.engines.trainer_process``; it ends when its standard input is closed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from typing import IO, Any

import torch

from thinker.interfaces import RealTransition
from thinker.runs import machine
from thinker.world_model.trainer import ModelTrainer

LARGEST_REPLAY = 1 << 28
"""Bytes of a replay up to which its trainer can move: its state is copied from process to process."""
_LENGTH_BYTES = 8
_WITH_WEIGHTS = ("train", "train_more", "load_state_dict")
"""Calls after which the weights are sent back."""


class TrainerProcess:
    """A process that a trainer can move to, as soon as it has started."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout
        self._unread = 0  # replies
        self._started = threading.Event()
        weakref.finalize(self, _stop, self._process)
        threading.Thread(target=_wait_for_start, args=(self._replies, self._started), daemon=True).start()

    def is_ready(self, timeout: float = 0.0) -> bool:
        """Whether the process has started, or does so within ``timeout`` seconds."""
        return self._started.wait(timeout)

    def send(self, call: str, *arguments: Any) -> None:
        """Call a method of the process's trainer without waiting for it; an error is raised by the next `ask`."""
        try:
            _write(self._requests, (call, arguments))
        except OSError as error:
            raise self._died() from error
        self._unread += 1

    def ask(self, call: str, *arguments: Any) -> tuple[Any, dict[str, torch.Tensor] | None, float]:
        """Call a method and return its result, the new weights if it changes them, and the seconds computed so far."""
        self.send(call, *arguments)
        reply: Any = None
        while self._unread:
            try:
                reply = _read(self._replies)
            except EOFError as error:
                raise self._died() from error
            self._unread -= 1
            if isinstance(reply, Exception):
                raise reply
        result, weights, core_seconds = reply
        return result, weights, core_seconds

    def _died(self) -> RuntimeError:
        return RuntimeError(
            f"the process that trains the model ended with status {self._process.wait()}; was it stopped, or is there "
            "too little memory? With --threads 1 a run needs no second process"
        )


class RemoteTrainer:
    """Stands in for a `ModelTrainer` that has moved to ``process``; see there for the methods.

    Its ``network`` has the weights of the last training, for everything except training. The same computations give
    the same results in either process.
    """

    def __init__(self, process: TrainerProcess, trainer: ModelTrainer) -> None:
        """Move ``trainer``; raises an error if one of its parts cannot be moved, and then changes nothing."""
        self.network = trainer.network
        self.core_seconds = 0.0  # computed by the process so far
        self._acting = trainer.acting
        self._process = process
        acting, trainer.acting = trainer.acting, ()
        try:
            self._ask("move", trainer, torch.get_num_threads())
        finally:
            trainer.acting = acting

    @staticmethod
    def can_move(trainer: ModelTrainer) -> bool:
        """Whether it is worth it: on a GPU, acting and training hardly wait for each other."""
        return trainer.network.device.type == "cpu" and trainer.replay.nbytes <= LARGEST_REPLAY

    def store(self, transition: RealTransition) -> None:
        self._process.send("store", transition)

    def abandon_episodes(self) -> None:
        self._process.send("abandon_episodes")

    def train(self, *, publish: bool = True) -> dict[str, float]:
        metrics: dict[str, float] = self._ask("train")
        if publish:
            self.publish()
        return metrics

    def train_more(self, transitions: int) -> dict[str, float]:
        metrics: dict[str, float] = self._ask("train_more", transitions)
        return metrics

    def publish(self) -> None:
        for copy in self._acting:
            copy.load_from(self.network)

    def state_dict(self) -> dict[str, Any]:
        """A copy of the trainer's state."""
        state: dict[str, Any] = self._ask("state_dict")
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._ask("load_state_dict", state)
        self.publish()

    def _ask(self, call: str, *arguments: Any) -> Any:
        result, weights, self.core_seconds = self._process.ask(call, *arguments)
        if weights is not None:
            self.network.load_state_dict(weights)
        return result


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Do what is asked until ``requests`` ends."""
    _write(replies, "started")
    trainer: ModelTrainer | None = None
    while True:
        try:
            message = _read_bytes(requests)
        except EOFError:
            return
        try:
            result, weights = None, None
            call, arguments = pickle.loads(message)
            if call == "move":
                trainer, threads = arguments
                machine.prepare(threads)
            else:
                assert trainer is not None
                result = getattr(trainer, call)(*arguments)
                weights = trainer.network.state_dict() if call in _WITH_WEIGHTS else None
            _write(replies, (result, weights, time.process_time()))
        except Exception as error:
            _write(replies, _portable(error))


def _portable(error: Exception) -> Exception:
    """``error`` if it survives the way to another process, otherwise one with its text."""
    try:
        if str(pickle.loads(pickle.dumps(error))) == str(error):
            return error
    except Exception:
        pass
    return RuntimeError("".join(traceback.format_exception(error)))


def _write(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little"))
    pipe.write(data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    return pickle.loads(_read_bytes(pipe))


def _read_bytes(pipe: IO[bytes]) -> bytes:
    length = int.from_bytes(_exactly(pipe, _LENGTH_BYTES), "little")
    return _exactly(pipe, length)


def _exactly(pipe: IO[bytes], length: int) -> bytes:
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return data


def _wait_for_start(replies: IO[bytes], started: threading.Event) -> None:
    with contextlib.suppress(EOFError, ValueError, OSError):  # it ended before it had started
        _read(replies)
        started.set()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            pipe.close()  # type: ignore[union-attr]


def main() -> None:
    # Whoever is stopped saves the run first, and for that the trainer is needed.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    replies, sys.stdout = sys.stdout.buffer, sys.stderr  # nothing else may be written to the pipe
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
