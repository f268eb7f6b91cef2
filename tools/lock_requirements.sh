#!/usr/bin/env bash
# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Resolves the three stacks, requirements.in under requirements.overrides into
# requirements.lock and the same for requirements.current and .colab, and what
# Flower and NVFlare need, requirements.flower and .nvflare, which have no
# overrides, and the reference with Ray and Dask, requirements.cluster: every
# package with its hashes, no index addresses. Versions that the present locks
# have are kept where they still fit, so that a second run changes nothing;
# --upgrade takes the newest ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v uv >/dev/null; then
  echo 'error: uv was not found' >&2
  echo 'why: pip cannot resolve with overrides, which jaxlib needs' >&2
  echo 'try: install uv, for example with `pip install uv`' >&2
  exit 3
fi
# Only metadata is read, so these Pythons need not be there.
export UV_PYTHON_DOWNLOADS=never

# resolve NAME PYTHON [FLAG...]
resolve() {
  local name=$1 python=$2 overrides=() stack=$1
  shift 2
  if [[ "${name}" == requirements.cluster ]]; then
    stack=requirements  # Which it includes.
  fi
  if [[ -e "${stack}.overrides" ]]; then
    overrides=(--override "${stack}.overrides")
  fi
  uv pip compile --quiet "${name}.in" "${overrides[@]}" \
    --python-version "${python}" --python-platform x86_64-manylinux_2_31 \
    --generate-hashes --no-header --no-annotate --no-emit-index-url \
    --no-emit-find-links --output-file "${name}.lock" "$@" >/dev/null
}

resolve requirements 3.11 "$@"
resolve requirements.flower 3.11 "$@"
resolve requirements.nvflare 3.11 "$@"
resolve requirements.cluster 3.11 "$@"
resolve requirements.current 3.12 "$@"
resolve requirements.colab 3.13 "$@"
# One lock for two Pythons: the newer one must have nothing to change.
oldest=$(<requirements.current.lock)
resolve requirements.current 3.13
if [[ "$(<requirements.current.lock)" != "${oldest}" ]]; then
  echo 'error: Python 3.12 and 3.13 need different packages' >&2
  echo 'why: requirements.current.lock serves both' >&2
  echo 'try: limit the package that differs in requirements.current.in' >&2
  exit 1
fi
