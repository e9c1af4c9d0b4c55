#!/usr/bin/env bash
# Exports a PyTorch module with the python3 of the PATH, such as that of an active environment. Installed as bin/stoker-export.
set -euo pipefail
folder=$(dirname "$(readlink -f "$0")")/../share/stoker/python
PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH} exec python3 -m stoker_export "$@"
