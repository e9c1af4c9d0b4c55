#!/usr/bin/env bash
# check_scripts.sh ROOT: checks that every shell script parses, starts with the standard lines, and
# passes shellcheck if that is installed.
set -euo pipefail
cd "${1:?give the root of the repository}"
bad=0
complain() {
  printf '%s\n' "$*" >&2
  bad=$((bad + 1))
}

mapfile -t scripts < <(find scripts tests/{package,project,system,systemd} docs .ci -type f \( -name '*.sh' -o -path '.ci/*' \) | sort)
((${#scripts[@]} > 0)) || complain "no scripts found under $1"
for script in "${scripts[@]}"; do
  bash -n "$script" || complain "$script: bash -n fails"
  # Sourced scripts are not executable and do not set shell options.
  if [[ -x $script ]]; then
    [[ $(head -n 1 "$script") == '#!/usr/bin/env bash' ]] || complain "$script: the first line must be #!/usr/bin/env bash"
    grep -q '^set -euo pipefail$' "$script" || complain "$script: 'set -euo pipefail' is missing"
  elif [[ $(head -n 1 "$script") == '#!'* ]]; then
    complain "$script: starts with #! and is not executable"
  fi
done
if command -v shellcheck >/dev/null; then
  shellcheck -x -P SCRIPTDIR "${scripts[@]}" || complain "shellcheck found fault"
  shellcheck -s sh packaging/deb/p* || complain "shellcheck found fault in packaging/deb"
else
  printf 'shellcheck is not installed: only parsed\n'
fi
((bad == 0)) || exit 1
printf '%d scripts are clean\n' "${#scripts[@]}"
