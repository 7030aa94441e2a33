"""The executor of a run: the caller's own, or one that the caller's function makes.

An executor that was given is used and left as it is. One that was made here is shut down here, and
another is made when it breaks (a worker was killed).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

from magic_committer._arguments import shown
from magic_committer.errors import WrongType

T = TypeVar("T")


class Workers:
    """An executor, and how to get another one."""

    def __init__(self, given: Executor | Callable[[], Executor]) -> None:
        """
        Raises:
            WrongType: it is neither an executor nor a function.
        """
        self._make: Callable[[], Executor] | None = None
        self._executor: Executor | None = None
        if callable(getattr(given, "submit", None)) and not isinstance(given, type):
            self._executor = given  # type: ignore[assignment]  # Dask's and others' only look like one
        elif callable(given):
            self._make = given
        else:
            raise WrongType(
                f"executor takes an executor, not {shown(given)}",
                hint="Pass executor=lambda: concurrent.futures.ProcessPoolExecutor(8)",
            )
        self.number = 0
        """Of the executor that is used now."""

    @property
    def renewable(self) -> bool:
        """Whether there is another executor when this one breaks."""
        return self._make is not None

    def submit(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Hand a call to the executor. Raises what the executor raises."""
        if self._executor is None:
            assert self._make is not None
            self._executor = self._make()
        return self._executor.submit(function, *arguments)

    def broke(self, number: int) -> None:
        """Note that the executor of that number is broken: the next call makes another. Repeatable:
        each of its calls says so."""
        if number == self.number:
            self.number += 1
            self.close(wait=False)

    def close(self, *, wait: bool) -> None:
        """Shut down what was made here. ``wait``: nothing runs in it any more, so it can be waited
        for."""
        if self._make is not None and self._executor is not None:
            executor, self._executor = self._executor, None
            executor.shutdown(
                wait=wait
            )  # loky's knows no `cancel_futures`; the driver has cancelled
