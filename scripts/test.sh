#!/usr/bin/env bash
# Fresh machine → environment → lint, types and all tests (the embedded real model among them), then the real engines
# (scripts/engines.sh), which need an environment of 4 GB: not with arguments, nor with PERSONALINK_ENGINES=no.
#
# usage: bash scripts/test.sh [arguments of pytest]
. "$(dirname "${BASH_SOURCE[0]}")/env.sh" embedded,test
ruff check .
ruff format --check .
mypy
python -m pytest --cov --cov-report=term:skip-covered "$@"
if [ $# -eq 0 ] && [ "${PERSONALINK_ENGINES:-}" != no ]; then
    bash scripts/engines.sh
fi
