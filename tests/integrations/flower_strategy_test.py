# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The Flower strategy without a network: order of a round, and what goes wrong.

On a stand-in where Flower is not installed, see `flower_stand_in`.
"""

import importlib.util
import json
import pathlib
import subprocess
import sys
import types

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.integrations import flower_stand_in
from tests.integrations import plain_loop
from tff_dp import _checks
from tff_dp.integrations import server_rounds
from tff_dp.integrations import updates

flower = flower_stand_in.adapter()

_ROOT = pathlib.Path(__file__).parents[2]
_PLAN = plain_loop.PLAN
_DELTA = 1e-5
# What two nodes add to every weight. The second is over the clip norm.
_CHANGES = {1: 0.25, 2: 10.0}


class _Killed(BaseException):
  """Stands for the end of the process; no `except Exception` catches it."""


class _Reply:
  """What a node sends back: a record, or an error that reading it raises."""

  def __init__(self, node, content):
    self.metadata = types.SimpleNamespace(src_node_id=node)
    self._content = content

  @property
  def content(self):
    if isinstance(self._content, BaseException):
      raise self._content
    return self._content


class _Torn:
  """An array of which only some bytes have arrived."""

  @property
  def data(self):
    raise ValueError('cannot reshape array of size 3 into shape (2,3)')


class _TornRecord:
  """A record with one such array."""

  def items(self):
    return [('w', _Torn())]


def _honest(message):
  """Returns the reply of a node that follows the protocol."""
  node = message.metadata.dst_node_id
  model = flower.arrays_of(message.content['arrays'])
  return _Reply(
      node, _content(plain_loop.changed(model, _CHANGES[node]))
  )


def _content(*models):
  return flower.RecordDict({
      f'arrays {index}': flower.record_of(model)
      for index, model in enumerate(models)
  })


class _Grid:
  """Nodes that reply at once, as `reply` makes of a message."""

  def __init__(self, reply=_honest, nodes=(1, 2)):
    self.nodes = list(nodes)
    self.sent, self.rounds, self.looks = [], [], 0
    self._reply = reply

  def get_node_ids(self):
    self.looks += 1
    if self.looks > 10:
      raise AssertionError('waits for nodes that do not come')
    return self.nodes

  def send_and_receive(self, messages, *, timeout):
    del timeout
    replies = []
    for message in messages:
      self.sent.append(message)
      # Flower sends one config in all rounds, which changes.
      self.rounds.append(message.content['config']['server-round'])
      reply = self._reply(message)
      replies += reply if isinstance(reply, list) else [reply]
    return replies


class StrategyTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path) / 'run'

  def _strategy(self, **options):
    return flower.DpFtrlStrategy(
        _PLAN,
        **dict(
            output_dir=self._folder, delta=_DELTA, insecure_seed=plain_loop.SEED
        ) | options,
    )

  def _start(self, strategy, grid, **options):
    return strategy.start(
        grid,
        flower.record_of(plain_loop.initial_model()),
        **dict(timeout=0) | options,
    )

  def _complaints(self):
    lines = (self._folder / 'secret' / 'clients.jsonl').read_text().splitlines()
    return [
        (each['round'], each['client_id'], each['problem'])
        for each in map(json.loads, lines)
    ]

  def _assert_is_plain_loop(self, result, changes):
    found = updates.flat(flower.arrays_of(result.arrays))
    np.testing.assert_array_equal(found, plain_loop.weights(changes))

  def test_ends_with_the_weights_of_a_plain_loop(self):
    strategy, grid, models = self._strategy(), _Grid(), []
    result = self._start(
        strategy, grid, evaluate_fn=lambda r, arrays: models.append((r, arrays))
    )
    self._assert_is_plain_loop(result, lambda _: _CHANGES.values())
    self.assertEqual(grid.rounds, [1, 1, 2, 2, 3, 3])
    self.assertEqual(
        [sorted(m.metadata.dst_node_id for m in grid.sent[i : i + 2])
         for i in (0, 2, 4)],
        [[1, 2]] * 3,
    )
    self.assertEqual({m.metadata.message_type for m in grid.sent}, {'train'})
    self.assertEqual([r for r, _ in models], [0, 1, 2, 3])
    # Nothing of clients but what has noise: no metrics, no numbers of them.
    self.assertEqual(
        {r: dict(metrics) for r, metrics in
         result.train_metrics_clientapp.items()},
        {r: {'epsilon': _PLAN.epsilon(delta=_DELTA, num_rounds=r)}
         for r in (1, 2, 3)},
    )
    self.assertEmpty(result.evaluate_metrics_clientapp)
    self.assertEqual(
        self._complaints(),
        [(r, '2', 'over the clip norm') for r in (1, 2, 3)],
    )

  def test_what_is_sent_is_the_model_of_the_run(self):
    strategy = self._strategy()

    def reply(message):
      sent = flower.arrays_of(message.content['arrays'])
      for name, value in strategy.rounds.model.items():
        np.testing.assert_array_equal(sent[name], value)
      return _honest(message)

    # Whatever model Flower holds.
    configure = strategy.configure_train

    def configure_train(server_round, arrays, config, grid):
      del arrays
      other = plain_loop.changed(plain_loop.initial_model(), 9.0)
      return configure(server_round, flower.record_of(other), config, grid)

    strategy.configure_train = configure_train
    result = self._start(strategy, _Grid(reply))
    self._assert_is_plain_loop(result, lambda _: _CHANGES.values())

  def test_nothing_is_possible_before_the_start(self):
    strategy = self._strategy()
    for call in (
        lambda: strategy.configure_train(1, None, {}, _Grid()),
        lambda: strategy.aggregate_train(1, []),
        strategy.summary,
    ):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'is not open'):
        call()
    self.assertFalse(self._folder.exists())

  def test_round_out_of_turn_is_refused_and_changes_nothing(self):
    strategy, grids = self._strategy(), []

    def reply(message):
      # In the midst of each round, which has a cohort.
      done = strategy.rounds.rounds_done
      for other in (0, done, done + 2, 99):
        with self.assertRaisesRegex(
            _checks.ArgumentError, f'server_round={other} .*{done + 1}'
        ):
          strategy.aggregate_train(other, [])
        with self.assertRaisesRegex(
            _checks.ArgumentError, f'server_round={other} '
        ):
          strategy.configure_train(other, None, {}, grids[0])
      self.assertEqual(strategy.rounds.rounds_done, done)
      return _honest(message)

    grids.append(_Grid(reply))
    result = self._start(strategy, grids[0])
    self._assert_is_plain_loop(result, lambda _: _CHANGES.values())
    with self.assertRaisesRegex(_checks.ArgumentError, 'server_round=99'):
      strategy.aggregate_train(99, [])

  @parameterized.named_parameters(
      ('error', ValueError('Message content is None')),
      ('missing', None),
      ('number', 3),
      ('no_record', {}),
      ('two_records', plain_loop.initial_model(), plain_loop.initial_model()),
      ('torn', 'torn'),
      ('of_other_names', {'v': np.ones([2, 3], np.float32)}),
      (
          'of_another_shape',
          {'w': np.zeros([3, 2], np.float32), 'b': np.ones(2)},
      ),
      ('of_integers', {'w': np.zeros([2, 3], np.int64), 'b': np.ones(2)}),
  )
  def test_garbage_of_a_node_counts_as_zero_and_ends_nobody_elses_round(
      self, *sent
  ):
    def reply(message):
      if message.metadata.dst_node_id == 1:
        return _honest(message)
      content = sent[0]
      if sent == ({},):
        content = _content()
      elif isinstance(content, dict):
        content = _content(*sent)
      elif content == 'torn':
        content = types.SimpleNamespace(array_records={'a': _TornRecord()})
      return _Reply(2, content)

    result = self._start(self._strategy(), _Grid(reply))
    self._assert_is_plain_loop(result, lambda _: [_CHANGES[1]])
    self.assertEqual(
        self._complaints(),
        [(r, '2', 'not of the shape of the model') for r in (1, 2, 3)],
    )

  def test_who_was_not_asked_or_replies_twice_is_not_counted(self):
    def reply(message):
      far = _content(plain_loop.changed(plain_loop.initial_model(), 1e6))
      return [
          _honest(message),
          _Reply(message.metadata.dst_node_id, far),
          _Reply(3, far),
      ]

    result = self._start(self._strategy(), _Grid(reply))
    self._assert_is_plain_loop(result, lambda _: _CHANGES.values())

  def test_who_stays_silent_has_taken_part(self):
    result = self._start(self._strategy(), _Grid(lambda message: []))
    self._assert_is_plain_loop(result, lambda _: [])
    self.assertEqual(
        [problem for *_, problem in self._complaints()], ['no reply'] * 6
    )

  def test_an_interrupt_while_a_reply_is_read_is_none_of_the_node(self):
    grid = _Grid(lambda message: _Reply(1, KeyboardInterrupt()))
    strategy = self._strategy()
    with self.assertRaises(KeyboardInterrupt):
      self._start(strategy, grid)
    self.assertEqual(strategy.rounds.rounds_done, 0)

  @parameterized.parameters(None, 3)
  def test_asks_nobody_beyond_the_budget(self, num_rounds):
    budget = _PLAN.epsilon(delta=_DELTA, num_rounds=2)
    strategy, grid = self._strategy(epsilon_budget=budget), _Grid()
    with self.assertLogs(flower.__name__, 'INFO') as logs:
      result = self._start(strategy, grid, num_rounds=num_rounds)
    self.assertIn('the epsilon budget ends before round 3', logs.output[-1])
    self.assertTrue((self._folder / 'release' / 'report.html').exists())
    self.assertEqual(grid.rounds, [1, 1, 2, 2])
    self.assertEqual(strategy.rounds.epsilon, budget)
    released = flower.arrays_of(result.arrays)
    # The same call again asks for nothing, and has the model.
    again = _Grid()
    result = self._start(
        self._strategy(epsilon_budget=budget), again, num_rounds=num_rounds
    )
    self.assertEmpty(again.sent)
    found = flower.arrays_of(result.arrays)
    for name, value in released.items():
      np.testing.assert_array_equal(found[name], value)

  def test_budget_below_one_round_is_refused_before_anything_is_written(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 1 would'):
      self._start(self._strategy(epsilon_budget=0.1), _Grid())
    self.assertFalse(self._folder.exists())

  def test_rounds_of_a_resumed_run_are_counted_from_its_beginning(self):
    first = _Grid()
    self._start(self._strategy(), first, num_rounds=1)
    self.assertEqual(first.rounds, [1, 1])
    # Flower counts from 1 again; as many rounds as wanted are there already.
    same = _Grid()
    self._start(self._strategy(), same, num_rounds=1)
    self.assertEmpty(same.sent)
    rest = _Grid()
    result = self._start(self._strategy(), rest)
    self.assertEqual(rest.rounds, [2, 2, 3, 3])
    self._assert_is_plain_loop(result, lambda _: _CHANGES.values())

  def test_killed_in_a_round_it_asks_the_same_nodes_and_waits_for_nobody(self):
    strategy = self._strategy()

    def kill(message):
      if strategy.rounds.rounds_done == 1:
        raise _Killed
      return _honest(message)

    with self.assertRaises(_Killed):
      self._start(strategy, _Grid(kill))
    # The second node has not come back in time; it has taken part all the same.
    grid = _Grid(nodes=[1])
    result = self._start(
        self._strategy(min_available_nodes=1), grid, num_rounds=2
    )
    self.assertEqual(grid.rounds, [2])
    self.assertEqual(grid.sent[0].metadata.dst_node_id, 1)
    self.assertIn((2, '2', 'no reply'), self._complaints())
    self.assertLen(flower.arrays_of(result.arrays), 2)
    rest = _Grid()
    result = self._start(self._strategy(), rest)
    self.assertEqual(rest.rounds, [3, 3])
    self._assert_is_plain_loop(
        result,
        lambda r: _CHANGES.values() if r != 2 else [_CHANGES[1]],
    )

  @parameterized.parameters(0, 4, -1)
  def test_number_of_rounds_is_that_of_the_plan_at_most(self, num_rounds):
    with self.assertRaisesRegex(
        _checks.ArgumentError, f'num_rounds={num_rounds} '
    ):
      self._start(self._strategy(), _Grid(), num_rounds=num_rounds)
    self.assertFalse(self._folder.exists())

  def test_bad_arguments_are_named(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'min_available_nodes=0'):
      self._strategy(min_available_nodes=0)
    with self.assertRaisesRegex(TypeError, 'noise_seed'):
      self._start(self._strategy(noise_seed=3), _Grid())

  def test_statement_names_the_stack(self):
    strategy = self._strategy()
    self._start(strategy, _Grid(), num_rounds=1)
    self.assertIsInstance(strategy.rounds, server_rounds.ServerRounds)
    path = self._folder / 'release' / 'privacy_statement.json'
    points = json.loads(path.read_text())['points']
    self.assertIn('Flower hands it', points['setting']['adversary'])
    self.assertEqual(points['mechanism']['rounds_done'], 1)


class ImportTest(absltest.TestCase):

  def test_without_flower_it_says_what_to_install(self):
    if importlib.util.find_spec('flwr') is not None:
      self.skipTest('Flower is here')
    code = 'from tff_dp.systems.dp_ftrl import flower'
    found = subprocess.run(
        [sys.executable, '-c', code],
        capture_output=True, text=True, cwd=_ROOT, check=False,
    )
    self.assertNotEqual(found.returncode, 0)
    self.assertIn('needs Flower 1.41', found.stderr)
    # The stand-in of these tests is nobody else's.
    with self.assertRaisesRegex(ImportError, 'make environment-flower'):
      importlib.import_module('tff_dp.systems.dp_ftrl.flower')


if __name__ == '__main__':
  absltest.main()
