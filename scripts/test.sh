#!/usr/bin/env bash
# Fresh machine → environment → lint, types and all tests (the embedded real model among them); with PERSONALINK_ENGINES=yes
# then the real engines, too (scripts/engines.sh), which need an environment of 4 GB.
#
# usage: bash scripts/test.sh [arguments of pytest]
. "$(dirname "${BASH_SOURCE[0]}")/env.sh" embedded,test
PYTHON="$venv/bin/python" bash scripts/browser.sh || true # without a browser its tests are skipped by name
ruff check .
ruff format --check .
mypy
python -m pytest --cov --cov-report=term:skip-covered "$@"
if [ $# -eq 0 ] && [ "${PERSONALINK_ENGINES:-}" = yes ]; then
    bash scripts/engines.sh
fi
