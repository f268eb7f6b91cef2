# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Verification looks for keys in every graph, coins where none are, warnings."""

import json
import pathlib
import shutil
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.attacks import bundles
from tests.statement import occasions
from tff_dp import _checks
from tff_dp import systems
from tff_dp.aggregators import release_marks
from tff_dp.export import bundle
from tff_dp.export import keys
from tff_dp.export import verification
from tff_dp.files import run_directory
from tff_dp.plans import events
from tff_dp.program import certification
from tff_dp.program.files import process_files
from tff_dp.statement import statement


class KeysTest(absltest.TestCase):

  def test_a_fixed_key_is_found_in_either_computation(self):
    initialize, following = object(), object()
    plan = occasions.PLANS['honaker']()
    with (
        mock.patch.object(keys, 'check', return_value=1),
        mock.patch.object(verification, '_check_marks'),
        mock.patch.object(certification, 'certify_computation'),
    ):
      for guilty in (initialize, following):
        found = lambda each, guilty=guilty: ['a key'] if each is guilty else []
        with mock.patch.object(process_files, 'keys_in', side_effect=found):
          with self.assertRaises(_checks.PrivacyRefusedError):
            verification.check_process(initialize, following, plan)
      with mock.patch.object(process_files, 'keys_in', return_value=[]):
        self.assertEqual(
            verification.check_process(initialize, following, plan), 1
        )


class CoinsTest(parameterized.TestCase):

  @parameterized.parameters(*occasions.PLANS)
  def test_a_coin_is_only_where_clients_draw_what_they_ask_for(self, name):
    plan = occasions.PLANS[name]()

    @tff.tensorflow.computation(np.int32)
    def marked(x):
      return release_marks.mark_coin(tf.identity(x))

    if systems.of(plan.kind).training().draws_are_coins:
      verification._check_marks(marked, plan)
      return
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'has a mark that no'
    ):
      verification._check_marks(marked, plan)


class WarningsTest(absltest.TestCase):

  def test_no_warning_of_the_plan_is_left_out(self):
    root = pathlib.Path(self.create_tempdir().full_path, 'bundle')
    shutil.copytree(bundles.kept(), root)
    manifest = json.loads((root / bundle.MANIFEST).read_text())
    described = events.read(root / bundle.EVENTS)
    of_plan = ['WEAK: one', 'WEAK: another']
    content = json.loads((root / bundle.STATEMENT).read_text())
    bundles.change_json(root / bundle.EVENTS, warnings=of_plan)
    with mock.patch.object(
        type(described.plan), '_warnings', return_value=of_plan
    ):
      for stated in ([], of_plan[:1], of_plan[1:], of_plan, of_plan + ['more']):
        content['warnings'] = stated
        run_directory.write_json(root / bundle.STATEMENT, content)
        found = statement.PrivacyStatement.from_json(content)
        (root / bundle.STATEMENT_PAGE).write_text(found.to_markdown())
        if set(stated) >= set(of_plan):
          verification._check_guarantee(root, manifest)
        else:
          with self.assertRaisesRegex(verification.Wrong, 'leaves out'):
            verification._check_guarantee(root, manifest)


if __name__ == '__main__':
  absltest.main()
