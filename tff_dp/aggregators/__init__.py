# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Aggregation factories that plug into any `tff.learning` algorithm."""

from tff_dp import _compat

_compat.require_tff()

# pylint: disable=g-import-not-at-top,g-importing-member,wrong-import-position
from tff_dp.aggregators.adaptive_clipping import AdaptiveClippingFactory
from tff_dp.aggregators.binomial_sum import BinomialVectorSumFactory
from tff_dp.aggregators.correlated_noise import CorrelatedNoiseFactory
from tff_dp.aggregators.integer_sum import IntegerVectorSumFactory
from tff_dp.aggregators.local_randomizers import LocalRandomizerFactory
from tff_dp.aggregators.local_randomizers import RandomizedResponseHistogramFactory
from tff_dp.aggregators.prefix_sum import PrefixSumFactory
