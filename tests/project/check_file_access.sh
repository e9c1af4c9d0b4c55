#!/usr/bin/env bash
# check_file_access.sh ROOT: checks that what handles run directories opens, creates, renames and removes files with the
# functions of shared/base/file.h only, which follow no link below a DirectoryRoot (docs/security.md). Prints one line per call
# of another function.
set -euo pipefail
cd "${1:?give the root of the repository}"

# Files that may call others, and for what.
allowed='
ctl/daemon_commands.cc -> profiles/, without following a link
daemon/group/device_share.cc, daemon/app/run_control.cc, daemon/stacks/traced_process.cc, daemon/server/peer.cc, daemon/train/core_wait.cc -> /sys and /proc
daemon/app/resume_checkpoint.cc -> rmdir(), which follows no link
daemon/server/control_server.cc -> /dev/null
daemon/server/listening_socket.cc -> control.sock
evaluator/cpu_pacer.cc, evaluator/priority.cc -> cgroups and /proc
evaluator/evaluator_app.cc -> its own temporary folder
shared/checkpoint/store.cc -> compares the directory at the path with the one that it has opened
'
calls='std::[io]?fstream\b|(^|[^:a-zA-Z0-9_>.])::(open|creat|unlink|rename|mkdir|rmdir|symlink|link|truncate|chmod|chown)\('
calls+='|(fs|filesystem)::(remove|rename|create_|copy|resize_file|permissions)'

found=0
while IFS=: read -r file line text; do
  grep -qE "(^|[, ])$file( |,)" <<<"$allowed" && continue
  echo "$file:$line: ${text#"${text%%[![:space:]]*}"}"
  found=1
done < <(git grep -nE "$calls" -- 'ctl/*.cc' 'daemon/*.cc' 'evaluator/*.cc' 'shared/batch/*.cc' 'shared/checkpoint/*.cc' \
  'shared/metrics/*.cc' 'shared/retention/*.cc' 'shared/run/*.cc' 'shared/view/*.cc')
((found == 0)) || { echo "use the functions of shared/base/file.h, or add the file to $0"; exit 1; }
