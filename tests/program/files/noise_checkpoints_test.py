# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of both kinds of checkpoint: the same releases to the bit, or none."""

import functools
import itertools
import pathlib
import shutil
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests.program import kills
from tests.program import real_run
import tff_dp
from tff_dp import _checks
from tff_dp import aggregators
from tff_dp import execution
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.aggregators import adaptive_clipping as adaptive_clipping_factory
from tff_dp.mechanisms import adaptive_clipping
from tff_dp.mechanisms.matrix import banded_inverse
from tff_dp.mechanisms.matrix import blt
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.program import run as run_lib
from tff_dp.program.files import checkpoints
from tff_dp.program.files import noise_checkpoints

_FULL, _SEED_ONLY = noise_checkpoints.KINDS
_NUM_ROUNDS = 12
_RESTART = 7
_NUM_PARAMS = 9
# Within a tree, at its end, and where the next one has just begun.
_INTERRUPTED = (4, 7, 8)
_VALUE = np.full(_NUM_PARAMS, 0.1, np.float32)

_MECHANISMS = {
    'independent': mechanisms.Independent(_NUM_ROUNDS),
    'tree': mechanisms.Tree(_NUM_ROUNDS, restart_every=_RESTART),
    'honaker': mechanisms.HonakerTree(
        _NUM_ROUNDS, restart_every=_RESTART, complete_trees=True
    ),
    'blt': blt.Blt(
        _NUM_ROUNDS, (0.3, 0.2), (0.97, 0.5), restart_every=_RESTART
    ),
    'banded': toeplitz.Banded.square_root(
        _NUM_ROUNDS, 4, restart_every=_RESTART
    ),
    'banded_inverse': banded_inverse.BandedInverse.square_root(_NUM_ROUNDS, 4),
    'banded_inverse_stored': banded_inverse.BandedInverse.square_root(
        _NUM_ROUNDS, 4, stores_draws=True, restart_every=_RESTART
    ),
}


def setUpModule():
  execution.set_default_context()


def _plan(mechanism) -> tff_dp.DpFtrlPlan:
  return tff_dp.DpFtrlPlan(
      mechanism=mechanism,
      participation=participation.UniformSampling(
          mechanism.num_rounds, max_participations=1
      ),
      l2_norm_clip=1.0,
      clients_per_round=2,
      noise_multiplier=2.0,
  )


@functools.cache
def _process(name: str) -> tff.templates.AggregationProcess:
  return _plan(_MECHANISMS[name]).aggregator().create(
      tff.TensorType(np.float32, [_NUM_PARAMS])
  )


def _through_checkpoint(state, plan, *, kind, like):
  """Returns a state as a resumed run gets it, and the bytes in between."""
  facts = noise_checkpoints.describe(state, plan, kind=kind)
  if kind == _SEED_ONLY:
    state = noise_checkpoints.without_buffers(state)
    packed = checkpoints.pack(state)
    loaded = checkpoints.unpack(
        packed, like=noise_checkpoints.without_buffers(like)
    )
    noise_checkpoints.check(facts, like, plan)
    loaded = noise_checkpoints.with_buffers(loaded, plan, like=like)
  else:
    packed = checkpoints.pack(state)
    loaded = checkpoints.unpack(packed, like=like)
    noise_checkpoints.check(facts, like, plan)
  return loaded, packed


def _bytes(structure) -> list[bytes]:
  return [np.asarray(leaf).tobytes() for leaf in tf.nest.flatten(structure)]


class BothKindsTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # Traced once: that takes longer than all that is drawn.
    build = functools.cache(noise_checkpoints._build_rebuild)
    cls.enterClassContext(
        mock.patch.object(noise_checkpoints, '_build_rebuild', build)
    )

  def _assert_resumes(self, process, plan):
    """Interrupts at some rounds and compares all releases after them.

    With checkpoints of either kind; building a process takes longer.
    """
    states, released = [process.initialize()], []
    for _ in range(_NUM_ROUNDS):
      output = process.next(states[-1], [_VALUE])
      states.append(output.state)
      released.append(_bytes((output.result, output.measurements)))
    # A state of another run, as a new process has it, for the structure only.
    like = process.initialize()
    for kind, round_index in itertools.product(
        noise_checkpoints.KINDS, _INTERRUPTED
    ):
      state, _ = _through_checkpoint(
          states[round_index], plan, kind=kind, like=like
      )
      tree.assert_same_structure(state, states[round_index])
      for expected in released[round_index:]:
        output = process.next(state, [_VALUE])
        state = output.state
        self.assertEqual(_bytes((output.result, output.measurements)), expected)

  @parameterized.named_parameters(*zip(_MECHANISMS, _MECHANISMS))
  def test_every_later_release_is_equal(self, name):
    self._assert_resumes(_process(name), _plan(_MECHANISMS[name]))

  @pytest.mark.reference_only(reason="needs TFF's worker")
  def test_through_the_worker(self):
    with execution.create_native_context():
      self._assert_resumes(_process('blt'), _plan(_MECHANISMS['blt']))

  def test_adaptive_clipping(self):
    plan = _plan(_MECHANISMS['banded'])
    process = adaptive_clipping_factory.AdaptiveClippingFactory(
        plan.mechanism,
        adaptive_clipping=adaptive_clipping.AdaptiveClipping(),
        noise_multiplier=2.0,
        initial_l2_norm_clip=1.0,
        clients_per_round=2,
    ).create(tff.TensorType(np.float32, [_NUM_PARAMS]))
    self._assert_resumes(process, plan)
    state = process.next(process.initialize(), [_VALUE]).state
    kept = noise_checkpoints.without_buffers(state)
    self.assertEqual(kept['buffers'][0].shape, (0,))
    for found, expected in zip(
        kept['quantile']['buffers'], state['quantile']['buffers'], strict=True
    ):
      np.testing.assert_array_equal(found, expected)

  def test_two_noise_states_in_one(self):
    plan, process = _plan(_MECHANISMS['blt']), _process('blt')
    first, second = process.initialize(), process.initialize()
    for _ in range(3):
      first = process.next(first, []).state
    second = process.next(second, []).state
    state = {'a': first, 'b': [second, np.float32(3)]}
    like = {'a': process.initialize(), 'b': [process.initialize(), 0]}
    like['b'][1] = np.float32(0)
    loaded, packed = _through_checkpoint(
        state, plan, kind=_SEED_ONLY, like=like
    )
    self.assertEqual(_bytes(loaded), _bytes(state))
    self.assertNotIn(first['buffers'][0].tobytes(), packed)

  def test_without_noise_there_is_nothing_to_rebuild(self):
    plan = _plan(_MECHANISMS['blt'])
    process = aggregators.CorrelatedNoiseFactory(
        plan.mechanism,
        noise_multiplier=0.0,
        l2_norm_clip=1.0,
        clients_per_round=2,
    ).create(tff.TensorType(np.float32, [_NUM_PARAMS]))
    state = process.initialize()
    facts = noise_checkpoints.describe(state, plan, kind=_SEED_ONLY)
    self.assertIsNone(facts['draws'])
    kept = noise_checkpoints.without_buffers(state)
    again = noise_checkpoints.with_buffers(kept, plan, like=state)
    self.assertEqual(_bytes(again), _bytes(state))

  def test_progress_ends_at_the_rounds_of_the_tree(self):
    plan, process = _plan(_MECHANISMS['honaker']), _process('honaker')
    like = state = process.initialize()
    for _ in range(_RESTART + 4):
      state = process.next(state, []).state
    reports = []
    noise_checkpoints.with_buffers(
        noise_checkpoints.without_buffers(state),
        plan,
        like=like,
        report=lambda *numbers: reports.append(numbers),
    )
    self.assertEqual(reports[-1], (4, 4))
    self.assertEqual(reports, sorted(set(reports)))


class FingerprintTest(parameterized.TestCase):

  @parameterized.parameters(
      ('honaker', _FULL, False),
      ('honaker', _SEED_ONLY, True),
      ('blt', _FULL, False),
      # Draws again what it has drawn, whatever the checkpoint holds.
      ('banded_inverse', _FULL, True),
      # All its levels are cached.
      ('tree', _FULL, False),
      ('banded_inverse_stored', _FULL, False),
      ('banded_inverse_stored', _SEED_ONLY, True),
      ('independent', _SEED_ONLY, False),
  )
  def test_only_what_needs_the_same_draws_says_so(self, name, kind, needs):
    plan = _plan(_MECHANISMS[name])
    facts = noise_checkpoints.describe(
        _process(name).initialize(), plan, kind=kind
    )
    self.assertEqual(facts['draws'] is not None, needs)

  def test_uncached_tree_needs_the_same_draws(self):
    plan = _plan(mechanisms.Tree(_NUM_ROUNDS, num_cached_levels=0))
    # A full checkpoint does not ask how many buffers the state has.
    state = _process('tree').initialize()
    facts = noise_checkpoints.describe(state, plan, kind=_FULL)
    self.assertIsNotNone(facts['draws'])

  def test_says_what_the_specification_asks_for(self):
    plan = _plan(_MECHANISMS['blt'])
    state = _process('blt').initialize()
    draws = noise_checkpoints.describe(state, plan, kind=_SEED_ONLY)['draws']
    self.assertEqual(
        draws,
        {
            'mechanism': 'blt',
            'parameters': mock.ANY,
            'tensorflow': tf.__version__,
            'algorithm': 'philox',
            'probe': mock.ANY,
        },
    )
    other = _plan(blt.Blt(_NUM_ROUNDS, (0.3, 0.2), (0.97, 0.25)))
    other_draws = noise_checkpoints.describe(state, other, kind=_SEED_ONLY)[
        'draws'
    ]
    self.assertEqual(other_draws['probe'], draws['probe'])
    self.assertNotEqual(other_draws['parameters'], draws['parameters'])

  @parameterized.parameters(
      ('blt', _SEED_ONLY, "checkpoint_kind='full'"),
      ('banded_inverse', _FULL, 'TensorFlow .* that the run began with$'),
  )
  def test_other_draws_are_refused_with_the_way_out(self, name, kind, way_out):
    plan = _plan(_MECHANISMS[name])
    state = _process(name).initialize()
    facts = noise_checkpoints.describe(state, plan, kind=kind)
    noise_checkpoints.check(facts, state, plan)
    with mock.patch.object(noise_checkpoints, '_probe', lambda: 'other'):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'does not reproduce the noise'
      ) as raised:
        noise_checkpoints.check(facts, state, plan)
    self.assertRegex(str(raised.exception), way_out)

  def test_buffers_of_another_mechanism_cannot_be_seed_only(self):
    state = _process('blt').initialize()
    with self.assertRaisesRegex(
        _checks.ArgumentError, "checkpoint_kind='seed_only'.*'full'"
    ):
      noise_checkpoints.describe(
          state, _plan(_MECHANISMS['banded']), kind=_SEED_ONLY
      )


def _run_until_killed(root: pathlib.Path, kind: str, *, in_round: int) -> None:
  run_round = run_lib.Run.run_round

  def stand_in(self, cohort):
    if self.rounds_done + 1 == in_round:
      raise kills.Killed
    return run_round(self, cohort)

  with mock.patch.object(run_lib.Run, 'run_round', stand_in):
    try:
      real_run.run(root, checkpoint_kind=kind)
    except kills.Killed:
      return
  raise AssertionError('The run was not killed.')


@pytest.mark.once
class TrainTest(kills.RunsTestCase):
  """A whole run, killed after a checkpoint of one kind."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # One context for all runs, since tracing takes seconds.
    cls.enterClassContext(
        execution.create_sync_in_process_context(max_concurrent_clients=1)
    )
    # All runs begin with the same noise key: copies of one initial state.
    initial = cls.parent / 'initial'
    _run_until_killed(initial, _SEED_ONLY, in_round=1)
    cls.uninterrupted = cls.parent / 'uninterrupted'
    shutil.copytree(initial, cls.uninterrupted)
    real_run.run(cls.uninterrupted)
    # The tree begins anew after round 8; the last checkpoint is of round 9.
    for kind in noise_checkpoints.KINDS:
      shutil.copytree(initial, cls.parent / kind)
      _run_until_killed(cls.parent / kind, kind, in_round=11)

  def _killed(self, kind: str) -> pathlib.Path:
    """Returns the directory of a run whose last checkpoint is of that kind."""
    root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / 'r'
    shutil.copytree(self.parent / kind, root)
    return root

  @parameterized.parameters(
      (_SEED_ONLY, _SEED_ONLY), (_SEED_ONLY, _FULL), (_FULL, _SEED_ONLY)
  )
  def test_killed_equals_uninterrupted(self, before, after):
    root = self._killed(before)
    result = real_run.run(root, checkpoint_kind=after)
    self.assertEqual(result.rounds_done, real_run.NUM_ROUNDS)
    for name in ('model.npz', 'metrics.csv', 'privacy_statement.json'):
      self.assertEqual(
          (root / 'release' / name).read_bytes(),
          (self.uninterrupted / 'release' / name).read_bytes(),
          name,
      )

  def test_other_draws(self):
    root = self._killed(_SEED_ONLY)
    with mock.patch.object(noise_checkpoints, '_probe', lambda: 'other'):
      # Whatever the next checkpoints shall be.
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'does not reproduce the noise'
      ):
        real_run.run(root, checkpoint_kind=_FULL)


if __name__ == '__main__':
  absltest.main()
