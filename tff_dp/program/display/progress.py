# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Progress: a bar on a terminal or in a notebook, plain lines elsewhere.

It shows only metrics that are public or covered by the guarantee.
"""

from collections.abc import Mapping
import math
import os
import sys
import threading
import time
from typing import TextIO

from tff_dp import _checks
from tff_dp.accounting import rounding

MODES = ('auto', 'bar', 'plain', 'quiet')
_SECONDS_BETWEEN_LINES = 60.0
_SECONDS_BEFORE_REBUILD_SHOWS = 3.0
_SECONDS_BETWEEN_REFRESHES = 2.0
_SNR = 'snr'
_SIGNAL_TO_NOISE = f'aggregator/{_SNR}'
# Width of a terminal or notebook that does not state its width.
_COLUMNS = 80
_LEAST_BAR = 6


class Progress:
  """Shows the progress of a run, the epsilon spent, and the time left.

  If the budget ends the run early, the display counts rounds up to that point.
  """

  def __init__(
      self,
      mode: str,
      *,
      delta: float,
      epsilon_budget: float | None,
      rounds_done: int,
      rounds_planned: int,
      num_params: int | None = None,
      stream: TextIO | None = None,
      clock=time.monotonic,
  ):
    """Initializes the display.

    Args:
      mode: 'bar', 'plain', 'quiet' or 'auto'. 'plain' prints `key=value` lines
        for the first and the last round, and one per minute. 'quiet' prints
        nothing. 'auto' is a bar on a terminal or in a notebook, and plain
        elsewhere.
      delta: Delta at which epsilon is stated.
      epsilon_budget: Budget at `delta`. `None` for no budget.
      rounds_done: Number of rounds done in earlier processes of this run.
      rounds_planned: 1-based index of the last round that plan and budget allow
        and the caller asks for.
      num_params: Number of weights with noise, `None` if unknown.
      stream: Stream to write to. Default: stderr, or the cell's output in a
        notebook.
      clock: Function that returns seconds, for tests.
    """
    _checks.one_of(MODES, progress=mode)
    in_notebook = stream is None and _is_notebook()
    if stream is None:
      # Notebooks show stderr in red.
      stream = sys.stdout if in_notebook else sys.stderr
    if mode == 'auto':
      mode = 'bar' if in_notebook or stream.isatty() else 'plain'
    self._mode = mode
    self._stream = stream
    self._clock = clock
    self._delta = delta
    self._epsilon_budget = epsilon_budget
    self._rounds_planned = rounds_planned
    self._first_round = rounds_done + 1
    # Three standard deviations of the estimate in a round without a signal.
    self._snr_of_noise = (18 / num_params) ** 0.25 if num_params else 0.0
    self._last_line = -math.inf
    self._start = clock()
    self._latest: dict[str, float] = {}
    self._seconds_of_rounds = []
    self._first_round_ended = None
    self._num_workers = None
    self._has_explained = False
    self._bar = None
    self._closed = threading.Event()
    self._refreshing = None
    if mode == 'bar':
      line = _NotebookLine() if in_notebook else stream
      self._bar = _make_bar(line, rounds_done, rounds_planned)
      if not in_notebook:
        self._refreshing = threading.Thread(target=self._refresh, daemon=True)
        self._refreshing.start()

  def _refresh(self) -> None:
    """Lets the bar show the time that passes within a round."""
    while not self._closed.wait(_SECONDS_BETWEEN_REFRESHES):
      self._bar.refresh()

  def starting(self) -> None:
    """Says that the first round has begun, which takes longer than later ones.
    """
    if self._bar is not None and self._first_round <= self._rounds_planned:
      self._bar.postfix = 'compiling the first round'
      self._bar.refresh()

  def say_if(self, message: str) -> None:
    """Prints a line unless it is empty."""
    if message:
      self.say(message)

  def say(self, message: str) -> None:
    """Prints a line, above the bar if there is one."""
    if self._mode == 'quiet':
      return
    if self._bar is not None:
      self._bar.write(message, file=self._stream)
    else:
      print(message, file=self._stream, flush=True)

  def round_done(
      self,
      round_index: int,
      *,
      seconds: float,
      epsilon: float,
      num_workers: int | None = None,
  ) -> None:
    """Reports a round.

    Args:
      round_index: 1-based index of the round.
      seconds: Duration of the round.
      epsilon: Epsilon spent so far, infinite without privacy.
      num_workers: Number of workers of a cluster. `None` without a cluster.
    """
    self._num_workers = num_workers
    if self._first_round_ended is None:
      self._first_round_ended = self._clock()
    # The first round compiles, which would spoil the estimate.
    if len(self._seconds_of_rounds) == 1:
      self._seconds_of_rounds = []
    self._seconds_of_rounds = [*self._seconds_of_rounds[-49:], seconds]
    if self._bar is not None:
      self._bar.postfix = self._fitting(epsilon)
      self._bar.update(1)
      return
    is_due = self._clock() - self._last_line >= _SECONDS_BETWEEN_LINES
    is_edge = round_index in (self._first_round, self._rounds_planned)
    if self._mode == 'plain' and (is_due or is_edge):
      self._last_line = self._clock()
      self.say(
          f'round={round_index}/{self._rounds_planned}'
          f' {self._text(epsilon)} {self._times(round_index)}'
          + (f' workers={num_workers}' if num_workers is not None else '')
      )

  def released(self, metrics: Mapping[str, float], shown: list[str]) -> None:
    """Stores released metrics to show with the next rounds.

    Args:
      metrics: Released metrics of a round, by name.
      shown: Names of the metrics to show, beside the signal-to-noise ratio.
    """
    for name in (_SIGNAL_TO_NOISE, *shown):
      if name in metrics:
        self._latest[name.rpartition('/')[2]] = metrics[name]
    ratio = metrics.get(_SIGNAL_TO_NOISE, math.inf)
    if ratio <= self._snr_of_noise and not self._has_explained:
      self._has_explained = True
      self.say(self._snr_means())

  def _snr_means(self) -> str:
    subject = '0'
    if self._snr_of_noise:
      subject = f'Noise alone gives 0 to about {self._snr_of_noise:.2g}: this'
    return (
        'snr: an estimate of the norm of the signal of one round, over the norm'
        f' of its noise. {subject} says that one round alone cannot be told from'
        ' noise, which is usual: the model is made of the sum of many rounds'
    )

  def close(self) -> None:
    """Ends the bar. May be called twice."""
    self._closed.set()
    if self._refreshing is not None:
      self._refreshing.join()
    if self._bar is not None:
      self._bar.close()

  def _times(self, round_index: int) -> str:
    """Returns the seconds of a round and the time left, for a plain line."""
    left = self._rounds_planned - round_index
    done = round_index - self._first_round
    if not done:
      # It compiles, and later rounds do not.
      rate = self._first_round_ended - self._start
      return f'seconds_per_round={rate:.3g} eta_seconds_at_most={rate * left:.0f}'
    rate = (self._clock() - self._first_round_ended) / done
    return f'seconds_per_round={rate:.3g} eta_seconds={rate * left:.0f}'

  def _seconds_per_round(self) -> float:
    return sum(self._seconds_of_rounds) / len(self._seconds_of_rounds)

  def _text(self, epsilon: float) -> str:
    """Returns the part of a plain line about privacy and quality."""
    parts = ['epsilon=inf(NO_PRIVACY)']
    if epsilon < math.inf:
      parts = [
          f'epsilon={self._spent(epsilon)}',
          f'delta={rounding.short(self._delta)}',
      ]
    names = self._known(epsilon)
    parts += [f'{name}={self._latest[name]:.4g}' for name in names]
    return ' '.join(parts)

  def _fitting(self, epsilon: float) -> str:
    """Returns as much text as fits into the bar, the most important first."""
    parts = ['NO PRIVACY']
    if epsilon < math.inf:
      parts = [f'epsilon {self._spent(epsilon)}']
    # Delta is in the line above the bar, and the ratio of a round says less
    # than the quality.
    names = sorted(self._known(epsilon), key=lambda name: name == _SNR)
    parts += [f'{name} {self._latest[name]:.4g}' for name in names]
    parts += [f'{self._seconds_per_round():.3g} s/round']
    if self._num_workers is not None:
      parts += [f'{self._num_workers} workers']
    total = self._rounds_planned
    rest = f'100%|| {total}/{total} [0:00:00<0:00:00, ]'
    room = (_width(self._stream) or _COLUMNS) - len(rest) - _LEAST_BAR
    fitting = ''
    for part in parts:
      longer = f'{fitting}, {part}' if fitting else part
      if len(longer) <= room:
        fitting = longer
    return fitting

  def _known(self, epsilon: float) -> list[str]:
    # Without noise there is no signal-to-noise ratio.
    return [n for n in self._latest if n != _SNR or epsilon < math.inf]

  def _spent(self, epsilon: float) -> str:
    budget = ''
    if self._epsilon_budget is not None:
      budget = f'/{rounding.short(self._epsilon_budget)}'
    return f'{rounding.rounded_up(epsilon)}{budget}'


class RebuildProgress:
  """Shows the progress of drawing the noise of earlier rounds again.

  It shows nothing in the first few seconds.
  """

  def __init__(
      self, mode: str, *, stream: TextIO | None = None, clock=time.monotonic
  ):
    """Initializes the display, with arguments as for `Progress`.

    A notebook counts as any other output here: 'auto' prints plain lines, and
    the default stream is stderr.
    """
    stream = sys.stderr if stream is None else stream
    if mode == 'auto':
      mode = 'bar' if stream.isatty() else 'plain'
    self._mode = mode
    self._stream = stream
    self._clock = clock
    self._start = clock()
    self._last_line = -math.inf
    self._has_shown = False

  def report(self, done: int, total: int) -> None:
    """Reports that `done` of `total` rounds are drawn."""
    elapsed = self._clock() - self._start
    if self._mode == 'quiet' or elapsed < _SECONDS_BEFORE_REBUILD_SHOWS:
      return
    is_bar = self._mode == 'bar'
    if not is_bar and self._clock() - self._last_line < _SECONDS_BETWEEN_LINES:
      return
    self._last_line = self._clock()
    eta = elapsed / done * (total - done)
    text = f'rebuilding_noise={done}/{total} eta_seconds={eta:.0f}'
    if is_bar:
      text = f'\rrebuilding the noise: round {done}/{total}, {eta:.0f} s left '
    print(text, end='' if is_bar else None, file=self._stream, flush=True)
    self._has_shown = True

  def close(self) -> None:
    """Ends the line. May be called twice."""
    if self._has_shown and self._mode == 'bar':
      print(file=self._stream, flush=True)
    self._has_shown = False


class _NotebookLine:
  """A line in the output of a cell, which every `write` replaces.

  It needs no widgets. A saved notebook keeps the last text of the line.
  """

  encoding = 'utf-8'  # tqdm asks whether it may draw blocks.

  def __init__(self):
    from IPython import display  # pylint: disable=g-import-not-at-top

    self._handle = display.display(
        {'text/plain': ''}, raw=True, display_id=True
    )

  def write(self, text: str) -> None:
    if line := text.strip():
      self._handle.update({'text/plain': line}, raw=True)

  def flush(self) -> None:
    pass


def _is_notebook() -> bool:
  """Returns whether this is the kernel of a notebook, Jupyter or Colab."""
  ipython = sys.modules.get('IPython')
  return ipython is not None and hasattr(ipython.get_ipython(), 'kernel')


def _make_bar(
    stream: TextIO | _NotebookLine, rounds_done: int, rounds_planned: int
):
  import tqdm  # pylint: disable=g-import-not-at-top

  # This only decides about colour: tqdm uses none unless told to.
  is_plain = isinstance(stream, _NotebookLine) or 'NO_COLOR' in os.environ
  size = {'dynamic_ncols': True}
  if not _width(stream):
    # Some terminals, such as those of CI services, say that they have no size.
    size = {'ncols': _COLUMNS, 'nrows': 24}
  return tqdm.tqdm(
      total=rounds_planned,
      initial=rounds_done,
      file=stream,
      **size,
      colour=None if is_plain else 'green',
      # Keeps the moving average honest in the first rounds.
      smoothing=0.1,
      bar_format='{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}'
      ' [{elapsed}<{remaining}{postfix}]',
  )


def _width(stream: TextIO) -> int | None:
  """Returns the width that the terminal states, `None` if it states none."""
  try:
    return os.get_terminal_size(stream.fileno()).columns
  except (AttributeError, OSError, ValueError):
    return None
