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


if __name__ == '__main__':
  absltest.main()
