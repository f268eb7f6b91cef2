# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Seed-only checkpoints: noise buffers that are drawn again on loading.

The buffers of a mechanism are a function of the noise key, the tree, the round
in it and the digests of the rounds. A seed-only checkpoint leaves them out, and
a resume draws the noise of the tree's rounds again. That gives the same buffers
only if the draws come out the same. To check this, the checkpoint holds
versions and a hash of fixed draws, made where the noise is made.

Everything else in the state (model, optimizer, prefix sums, clip norms) depends
on data and is always stored.
"""

import collections
from collections.abc import Callable, Mapping
import functools
import hashlib
import json
import time
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_dp import _checks
from tff_dp import streams
from tff_dp.aggregators import noise_state
from tff_dp.plans import base

FULL, SEED_ONLY = 'full', 'seed_only'
KINDS = (FULL, SEED_ONLY)

# Path of a noise state in the state of a process, as `tree` gives it.
Path = tuple
# Function of (rounds done, all rounds).
Report = Callable[[int, int], None]

_MARKS = ('key', 'tree_id', 'round_in_tree', 'digests')
_BUFFERS = 'buffers'
# Many, because two versions of a function may differ in only a few values.
_NUM_PROBED = 2**17
_SECONDS_PER_CALL = 1.0


def describe(state: Any, plan: base.Plan, *, kind: str) -> dict:
  """Returns the facts about the noise for a checkpoint, as plain JSON types.

  Facts about the draws are included only if a resume makes earlier draws again.
  A resume from a seed-only checkpoint does so to rebuild the buffers. A resume
  from a full checkpoint does so only if the mechanism redraws in its rounds
  (`Mechanism.redraws`).

  Args:
    state: The process state.
    plan: The plan of the process.
    kind: Kind of the checkpoint, one of `KINDS`.

  Raises:
    ArgumentError: If a seed-only checkpoint is asked for, and the state has
      buffers, but not as many as the plan's mechanism.
  """
  found = _find(state)
  counts = [_count_buffers(state, path) for path in found]
  facts = {'kind': kind, 'draws': None}
  if found and (plan.mechanism.redraws or (kind == SEED_ONLY and any(counts))):
    facts['draws'] = {
        'mechanism': plan.mechanism.name,
        'parameters': _hash(json.dumps(plan.describe()['mechanism'])),
        'tensorflow': tf.__version__,
        'algorithm': streams.ALGORITHM,
        'probe': _probe(),
    }
  # A process without noise keeps no buffers.
  if kind == SEED_ONLY and any(
      count not in (0, plan.mechanism.state_copies) for count in counts
  ):
    raise _checks.ArgumentError(
        'checkpoint_kind',
        kind,
        f'{FULL!r}: the process keeps {max(counts)} noise buffers and the plan'
        f' has {plan.mechanism.state_copies}, so they cannot be drawn again',
    )
  return facts


def check(facts: Mapping, state: Any, plan: base.Plan) -> None:
  """Raises unless draws come out as they did where a checkpoint was saved.

  Args:
    facts: Result of `describe` in the process that saved the checkpoint.
    state: A state of the process.
    plan: The plan of the process.

  Raises:
    PrivacyRefusedError: If draws differ. The message has both descriptions and
      the way out.
  """
  before = facts['draws']
  if before is None:
    return
  here = describe(state, plan, kind=facts['kind'])['draws']
  # Versions may differ as long as the draws do not.
  told = ('mechanism', 'parameters', 'algorithm', 'probe')
  if here is not None and all(before[name] == here[name] for name in told):
    return
  way_out = (
      f'resume with TensorFlow {before["tensorflow"]} and the kind of device'
      ' that the run began with'
  )
  if not plan.mechanism.redraws:
    way_out += (
        f"; from its next checkpoint with checkpoint_kind='{FULL}' on, the run"
        ' can go on anywhere'
    )
  raise _checks.PrivacyRefusedError(
      'this machine does not reproduce the noise of earlier rounds, which the'
      f' checkpoint needs ({before} where it was saved, {here} here)',
      why='the mechanism would take back other noise than it added',
      way_out=way_out,
  )


def without_buffers(state: Any) -> Any:
  """Returns a process state whose noise buffers are empty.

  A buffer is what the mechanism remembers of earlier noise.
  """
  paths = _find(state)
  return tree.map_structure_with_path(
      lambda path, leaf: (
          np.zeros([0], np.asarray(leaf).dtype)
          if _is_buffer(path, paths)
          else leaf
      ),
      state,
  )


def with_buffers(
    state: Any,
    plan: base.Plan,
    *,
    like: Any,
    report: Report = lambda done, total: None,
) -> Any:
  """Returns a process state with the buffers that `without_buffers` removed.

  The buffers are made of noise that is drawn again, from the keys in the state.
  The noise is drawn in the current TFF context, at the server, as in the
  aggregator.

  Args:
    state: Result of `without_buffers`, perhaps from another Python process.
    plan: The plan of the process.
    like: A state of the same process, which gives the size of the buffers.
    report: Function that is told the progress from time to time.
  """
  paths = _find(state)
  leaves = dict(tree.flatten_with_path(state))
  sizes = {
      path[:-2]: np.shape(leaf)[0]
      for path, leaf in tree.flatten_with_path(like)
      if _is_buffer(path, paths)
  }
  rebuilt = {}
  for path, num_params in sizes.items():
    buffers = _rebuild(
        plan.mechanism,
        *(leaves[path + (mark,)] for mark in _MARKS),
        num_params=num_params,
        report=report,
    )
    for index, buffer in enumerate(buffers):
      rebuilt[path + (_BUFFERS, index)] = buffer
  return tree.map_structure_with_path(
      lambda path, leaf: rebuilt.get(path, leaf), state
  )


def _find(state: Any) -> list[Path]:
  """Returns the paths of the noise states in a process state.

  A noise state is a structure that has the leaves `_MARKS`.
  """
  paths = [path for path, _ in tree.flatten_with_path(state)]
  known = set(paths)
  return [
      path[:-1]
      for path in paths
      if path[-1:] == _MARKS[:1]
      and all(path[:-1] + (mark,) in known for mark in _MARKS)
  ]


def _is_buffer(path: Path, found: list[Path]) -> bool:
  """Returns whether a leaf is a direct buffer of one of the noise states.

  Deeper buffers, such as the scalars of a quantile estimate, are stored in
  every checkpoint.
  """
  return path[-2:-1] == (_BUFFERS,) and path[:-2] in found


def _count_buffers(state: Any, found: Path) -> int:
  return sum(
      _is_buffer(path, [found]) for path, _ in tree.flatten_with_path(state)
  )


def _rebuild(
    mechanism, key, tree_id, round_in_tree, digests, *, num_params, report
):
  """Returns the buffers of one noise state. Each TFF call takes about 1 s."""
  buffers = [np.zeros([num_params], np.float32)] * mechanism.state_copies
  first = int(noise_state.first_remembered(mechanism, round_in_tree))
  rebuild = _build_rebuild(mechanism, num_params)
  done, total, num_rounds = first, int(round_in_tree), 1
  while done < total:
    target = min(done + num_rounds, total)
    start = time.monotonic()
    buffers = rebuild(
        collections.OrderedDict(
            key=key,
            tree_id=tree_id,
            round_in_tree=target,
            digests=digests,
            start=(done, buffers),
        )
    )
    done = target
    if time.monotonic() - start < _SECONDS_PER_CALL:
      num_rounds *= 2
    report(done - first, total - first)
  return [np.asarray(buffer) for buffer in buffers]


def _build_rebuild(mechanism, num_params: int) -> tff.Computation:
  """Returns `noise_state.rebuild_buffers` as a computation at the server."""
  buffers_type = [(np.float32, [num_params])] * mechanism.state_copies

  @tff.tensorflow.computation(
      collections.OrderedDict(
          key=(np.int64, [2]),
          tree_id=np.int64,
          round_in_tree=np.int64,
          digests=(np.int64, [mechanism.rounds_drawn]),
          start=(np.int64, buffers_type),
      )
  )
  @tf.function(autograph=False)
  def rebuild(arguments):
    return list(
        noise_state.rebuild_buffers(
            mechanism,
            domain=noise_state.VALUE_DOMAIN,
            num_params=num_params,
            **arguments,
        )
    )

  @tff.federated_computation(
      tff.FederatedType(rebuild.type_signature.parameter, tff.SERVER)
  )
  def at_server(arguments):
    return tff.federated_map(rebuild, arguments)

  return at_server


def _probe() -> str:
  """Returns a hash of fixed, public draws and of a combination of them."""
  return _hash(np.asarray(_probe_computation()(), np.float32).tobytes())


@functools.cache
def _probe_computation() -> tff.Computation:
  """Returns the draws of `_probe`. Tracing them takes longer than drawing."""

  @tff.tensorflow.computation
  @tf.function(autograph=False)
  def draw():
    key = streams.domain_key(tf.constant([1, 2], tf.int64), 'probe')
    operations = streams.operations(key, _NUM_PROBED)
    draws = [operations.draw(level, 3) for level in range(3)]
    return tf.concat(
        [*draws, operations.combine([1.0, -1 / 3, 0.7], draws)], axis=0
    )

  @tff.federated_computation
  def at_server():
    return tff.federated_eval(draw, tff.SERVER)

  return at_server


def _hash(content: str | bytes) -> str:
  if isinstance(content, str):
    content = content.encode()
  return hashlib.sha256(content).hexdigest()[:16]
