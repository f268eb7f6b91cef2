# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A file of events from which something was removed is not read."""

import copy
import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from tests.statement import occasions
from tff_dp import _checks
from tff_dp.plans import events

_DELTA = 1e-6


def _places(content, path=()):
  """Yields the paths of all keys in nested dicts and lists."""
  if isinstance(content, dict):
    items = content.items()
  elif isinstance(content, list):
    items = enumerate(content)
  else:
    return
  for key, value in items:
    yield (*path, key)
    yield from _places(value, (*path, key))


class RemovedTest(parameterized.TestCase):

  @parameterized.parameters(*occasions.PLANS)
  def test_file_without_one_entry(self, name):
    plan = occasions.PLANS[name]()
    path = pathlib.Path(self.create_tempdir().full_path) / 'events.json'
    whole = json.loads(json.dumps(plan.events_json(delta=_DELTA)))
    path.write_text(json.dumps(whole))
    self.assertEqual(events.read(path).plan, plan)
    for place in _places(whole):
      content = copy.deepcopy(whole)
      inner = content
      for key in place[:-1]:
        inner = inner[key]
      if not isinstance(inner, dict) or inner.pop(place[-1]) is None:
        # A shorter list is another plan, and no value says the same as `None`.
        continue
      path.write_text(json.dumps(content))
      with self.subTest(place=place):
        with self.assertRaises(
            (_checks.ArgumentError, _checks.PrivacyRefusedError)
        ):
          events.read(path)


class ChangedTest(parameterized.TestCase):

  @parameterized.parameters(
      (0.1, 0.1), (0.1, 0.1 * (1 + 1e-7)), (3, 3), ('a', 'a'), (None, None),
      ([1, {'a': 0.5}], [1, {'a': 0.5}]),
  )
  def test_the_same(self, stated, planned):
    events.check_same('it', stated, planned, tolerance=1e-6)

  @parameterized.parameters(
      (0.1, 0.1 * (1 + 1e-5)),
      # Whole numbers are exact.
      (10**9, 10**9 + 1),
      (10**9 + 1, 1e9),
      (True, 'true'),
      (None, 0),
      ('a', 'b'),
      ([1, 2], [1]),
      ([1, 2], [2, 1]),
      ({'a': 1}, {'a': 1, 'b': 2}),
      ({'a': 1, 'b': 2}, {'a': 1}),
      ([1, {'a': 0.5}], [1, {'a': 0.6}]),
  )
  def test_other(self, stated, planned):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'events state'):
      events.check_same('it', stated, planned, tolerance=1e-6)

  @parameterized.parameters(
      (dict(schema='other'), 'schema'),
      (dict(schema_version=0), 'schema'),
      (dict(events=[{'rounds': 10**7 + 1}]), 'rounds=10000001 is beyond'),
      (dict(events=[{'rounds': -(10**7) - 1}]), 'is beyond'),
      (dict(delta='a\x1bb'), 'has a text'),
  )
  def test_what_is_no_file_of_events(self, changes, message):
    plan = next(iter(occasions.PLANS.values()))()
    path = pathlib.Path(self.create_tempdir().full_path) / 'events.json'
    path.write_text(json.dumps(plan.events_json(delta=_DELTA) | changes))
    with self.assertRaisesRegex(
        _checks.ArgumentError, rf'events\.json.*\(\w+Error: .*{message}'
    ):
      events.read(path)


if __name__ == '__main__':
  absltest.main()
