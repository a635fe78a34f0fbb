#!/usr/bin/env bash
# Fresh machine → environment → every row of the paper's tables on real people's histories with a real small model.
#
# usage: bash scripts/quickstart.sh [more settings, e.g. data.n_users=15]
. "$(dirname "${BASH_SOURCE[0]}")/env.sh" embedded
personalink run experiment=quickstart "$@"
echo
personalink run experiment=quickstart_films "$@"
echo
echo "In a new shell: . ${venv}/bin/activate"
