# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Formulas of papers that do not hold, or that no system of the library uses.

They reproduce the papers' numbers and certify nothing. The library has none of
them. Each module names the flaw of each formula, and the tests beside it have
the counterexample:

* `check_ins`: shuffled check-in (arXiv:2206.03151), stronger clones
  (arXiv:2208.04591), random check-ins (arXiv:2007.06605).
* `later_snapshots`: what one weight of a later model still shows, and
  `observers`: who sees less than draw and discard protects against
  (arXiv:1807.04369).
* `silo_noise`: the noise of silos, and `silo_shuffling`: silos behind a
  shuffler, a bound that holds (arXiv:2106.09779).
* `shuffled_renyi`: shuffled check-in by Renyi divergence, repaired: it holds and
  is loose (arXiv:2206.03151).
"""
