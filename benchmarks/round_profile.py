# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where the time of a round goes: in Python, and in TensorFlow's operations.

For Python it looks at all threads now and then. A tracing profiler sees the
calling thread only, and slows down what it counts; a worker thread of a context
is what matters here. For operations it asks TensorFlow's own profiler.
"""

import collections
import os
import pathlib
import re
import sys
import tempfile
import threading
import time

import tensorflow as tf

_INTERVAL = 0.002
_TOP = 25
_KERNEL = re.compile(r'[^: ]+:(\w+)')
# A thread whose innermost function is in one of these waits for others.
_WAITING = (
    'threading.py', 'thread.py', 'selectors.py', 'queue.py',
    # Channels to TFF's worker, and processes that run tests.
    'grpc/_channel.py', 'execnet/gateway_base.py',
)


def _place(frame) -> str:
  code = frame.f_code
  folders = code.co_filename.split(os.sep)
  return f'{"/".join(folders[-3:])}:{code.co_name}'


class _Sampler:
  """Counts in which functions the threads are that have something to do."""

  def __init__(self):
    self.inside = collections.Counter()
    self.at = collections.Counter()
    self.num_samples = 0
    self._stop = threading.Event()
    self._thread = threading.Thread(target=self._watch, daemon=True)

  def _watch(self):
    own = threading.get_ident()
    while not self._stop.wait(_INTERVAL):
      self.num_samples += 1
      names = {t.ident: t.name for t in threading.enumerate()}
      # pylint: disable-next=protected-access
      for ident, frame in sys._current_frames().items():
        if ident == own or frame.f_code.co_filename.endswith(_WAITING):
          continue
        thread = names.get(ident, 'unknown')
        self.at[thread, f'{_place(frame)}:{frame.f_lineno}'] += 1
        places = set()
        while frame is not None and frame.f_code is not profile.__code__:
          places.add(_place(frame))
          frame = frame.f_back
        self.inside.update((thread, place) for place in places)

  def __enter__(self):
    self._thread.start()
    return self

  def __exit__(self, *exception_info):
    self._stop.set()
    self._thread.join()


def _section(title: str, counter, num_samples: int) -> list[str]:
  lines = ['', title]
  for (thread, place), count in counter.most_common(_TOP):
    lines.append(f'{100 * count / num_samples:6.1f} %  {thread:<24} {place}')
  return lines


def _times_of_operations(space) -> collections.Counter:
  """Returns nanoseconds by kind of operation, without what each one calls.

  Args:
    space: What TensorFlow's profiler wrote, an `XSpace`.
  """
  found = collections.Counter()
  for plane in space.planes:
    if 'CPU' not in plane.name:
      continue
    for line in plane.lines:
      open_events = []
      for event in sorted(
          line.events, key=lambda e: (e.offset_ps, -e.duration_ps)
      ):
        name = plane.event_metadata[event.metadata_id].name
        is_kernel = _KERNEL.fullmatch(name)
        while open_events and open_events[-1][1] <= event.offset_ps:
          open_events.pop()
        if open_events:
          found[open_events[-1][0]] -= event.duration_ps / 1000
        kind = is_kernel[1] if is_kernel else 'other'
        found[kind] += event.duration_ps / 1000
        open_events.append((kind, event.offset_ps + event.duration_ps))
  return found


def operations(runner) -> str:
  """Returns a report on the operations of one round of a row, warmed up.

  Times are of a clock, not of a processor: an operation that waits for another
  program counts as at work. The share of 'other' is of TensorFlow's runtime.
  """
  # pylint: disable-next=g-import-not-at-top,g-direct-tensorflow-import
  from tensorflow.tsl.profiler.protobuf import xplane_pb2

  with tempfile.TemporaryDirectory() as folder:
    with tf.profiler.experimental.Profile(folder):
      runner.run_round()
    space = xplane_pb2.XSpace()
    (path,) = pathlib.Path(folder).rglob('*.xplane.pb')
    space.ParseFromString(path.read_bytes())
  found = _times_of_operations(space)
  total = max(1, sum(found.values()))
  return '\n'.join(
      ['', 'in an operation of TensorFlow, one round']
      + [
          f'{100 * time_in / total:6.1f} %  {time_in / 1e6:9.1f} ms  {kind}'
          for kind, time_in in found.most_common(_TOP)
      ]
  )


def profile(runner, num_rounds: int) -> str:
  """Returns a report on `num_rounds` rounds of a row that is warmed up.

  Percentages are of wall time, per thread. CPU time is this process's only:
  what TFF's worker or pfl-research's process use is not in it.
  """
  cpu, wall = time.process_time(), time.perf_counter()
  with _Sampler() as sampler:
    for _ in range(num_rounds):
      runner.run_round()
  cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
  samples = max(1, sampler.num_samples)
  return '\n'.join([
      f'{wall / num_rounds:.3f} s a round, {cpu / num_rounds:.3f} s of CPU in'
      f' this process ({cpu / wall:.2f} cores), {sampler.num_samples} samples',
      *_section('in a function or what it calls', sampler.inside, samples),
      *_section('at a line', sampler.at, samples),
      operations(runner),
  ])
