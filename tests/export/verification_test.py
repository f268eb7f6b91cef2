# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Verification looks for keys in every graph, and for coins where none are."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.statement import occasions
from tff_dp import _checks
from tff_dp import systems
from tff_dp.aggregators import release_marks
from tff_dp.export import keys
from tff_dp.export import verification
from tff_dp.program import certification
from tff_dp.program.files import process_files


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


if __name__ == '__main__':
  absltest.main()
