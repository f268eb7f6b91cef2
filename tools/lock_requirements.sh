#!/usr/bin/env bash
# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Resolves the three stacks, requirements.in under requirements.overrides into
# requirements.lock and the same for requirements.current and .colab, and what
# Flower and NVFlare need, requirements.flower and .nvflare, which have no
# overrides, and the reference with Ray and Dask, requirements.cluster, the current one
# with what builds the site, requirements.docs, and the set of a benchmark. Further locks have only what comes on top of a stack:
# requirements.cuda, .cuda-current and .jupyter, and .notebooks for Colab. Every
# package has its hashes, no lock an index address. Versions that the present locks
# have are kept where they still fit, so that a second run changes nothing;
# --upgrade takes the newest ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v uv >/dev/null; then
  echo 'error: uv was not found' >&2
  echo 'why: pip cannot resolve with overrides, which jaxlib needs' >&2
  echo 'try: install uv, as its documentation says' >&2
  exit 3
fi
# Only metadata is read, so these Pythons need not be there.
export UV_PYTHON_DOWNLOADS=never

# resolve NAME PYTHON [FLAG...]
resolve() {
  local name=$1 python=$2 overrides=() stack=$1
  shift 2
  # What it includes.
  case "${name}" in
    requirements.cluster) stack=requirements ;;
    requirements.docs) stack=requirements.current ;;
  esac
  if [[ -e "${stack}.overrides" ]]; then
    overrides=(--override "${stack}.overrides")
  fi
  compile "${name}" "${python}" "${overrides[@]}" "$@"
}

# compile NAME PYTHON [FLAG...]
compile() {
  local name=$1 python=$2
  shift 2
  uv pip compile --quiet "${name}.in" \
    --python-version "${python}" --python-platform x86_64-manylinux_2_31 \
    --generate-hashes --no-header --no-annotate --no-emit-index-url \
    --no-emit-find-links --output-file "${name}.lock" "$@" >/dev/null
}

# resolve_on_top NAME STACK PYTHON [FLAG...]: the packages of NAME that the lock of
# STACK has not, or has in a version that NAME.overrides lifts.
resolve_on_top() {
  local name=$1 stack=$2 python=$3 flags=() lifted='' package
  shift 3
  if [[ -e "${name}.overrides" ]]; then
    flags=(--override "${name}.overrides")
    lifted=$(sed -n 's/^\([a-z0-9-]*\)[<>=].*/\1/p' "${name}.overrides")
  fi
  for package in $(sed -n 's/^\([a-z0-9-]*\)==.*/\1/p' "${stack}.lock"); do
    if [[ " ${lifted} " != *" ${package} "* ]]; then
      flags+=(--no-emit-package "${package}")
    fi
  done
  # Without hashes, which say nothing about the choice of versions.
  sed -n 's/^\([a-z0-9-]*==[^ ]*\).*/\1/p' "${stack}.lock" \
    | grep -vE "^(${lifted:-none})==" > "${constraints}"
  compile "${name}" "${python}" --constraint "${constraints}" "${flags[@]}" "$@"
}
constraints=$(mktemp)
trap 'rm -f "${constraints}"' EXIT

resolve requirements 3.11 "$@"
resolve requirements.flower 3.11 "$@"
resolve requirements.nvflare 3.11 "$@"
resolve requirements.cluster 3.11 "$@"
resolve requirements.benchmark 3.11 "$@"
resolve requirements.uv 3.11 "$@"
resolve_on_top requirements.cuda requirements 3.11 "$@"
resolve_on_top requirements.jupyter requirements 3.11 "$@"
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
resolve requirements.docs 3.13 --override requirements.docs.overrides "$@"
resolve_on_top requirements.cuda-current requirements.current 3.12 "$@"
# All that the first cell installs is in the lock of Colab; nothing else is wanted.
sed -n 's/^\([a-z0-9-]*==[^ ]*\).*/\1/p' requirements.colab.lock > "${constraints}"
compile requirements.notebooks 3.13 --no-deps --constraint "${constraints}" "$@"
