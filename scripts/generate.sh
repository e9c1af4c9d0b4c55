#!/usr/bin/env bash
# Writes the documents that are generated from the config key descriptors (shared/config), from the
# events of the log (shared/base/log_events.h), from the metrics (shared/eval_metrics/metric_table.cc),
# from the resources (shared/base/resource_use.h) and from what several processes cannot do (shared/config/topology_limits.cc).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/generate.sh [--check]

Builds stoker-config-reference and writes config/stoker.yaml, config/stoker.schema.json and the tables
of docs/configuration.md, docs/distributed.md, docs/events.md and docs/metrics.md.

  --check  write nothing; print the differences and exit with 1 if a committed file is out of date

STOKER_CONFIG_REFERENCE is the path of a stoker-config-reference that is already built.
HELP
  exit 0
fi
[[ $# == 0 || ($# == 1 && $1 == --check) ]] || die "unknown arguments: $*; see --help"
check=${1:-}
cd "$root"

program=${STOKER_CONFIG_REFERENCE:-$root/build/release/bin/stoker-config-reference}
[[ -n ${STOKER_CONFIG_REFERENCE:-} ]] || "$root/scripts/build.sh" release stoker-config-reference
generated=$(mktemp -d)
trap 'rm -rf "$generated"' EXIT

# write_part PAGE PART DOCUMENT: docs/PAGE.md with what is between the two marker comments of PART replaced.
write_part() {
  "$program" "$3" >"$generated/tables.md"
  [[ -e $generated/$1.md ]] || cp "docs/$1.md" "$generated/$1.md"
  awk -v tables="$generated/tables.md" -v part="$2" '
    $0 == "<!-- end of generated " part " -->" { inside = 0; ends++ }
    !inside { print }
    $0 == "<!-- generated: " part " -->" {
      inside = 1
      starts++
      print ""
      while ((getline line <tables) > 0) print line
      print ""
    }
    END { exit !(starts == 1 && ends == 1) }' "$generated/$1.md" >"$generated/page.md" ||
    die "docs/$1.md must have the comments that start and end the generated $2, once"
  mv "$generated/page.md" "$generated/$1.md"
}

"$program" manual >"$generated/stoker.yaml"
"$program" schema >"$generated/stoker.schema.json"
write_part configuration settings markdown
write_part configuration synonyms synonyms
write_part events events events
write_part metrics metrics metrics
write_part metrics resources resources
write_part distributed limits limits

stale=0
for file in config/stoker.yaml config/stoker.schema.json docs/configuration.md docs/distributed.md docs/events.md docs/metrics.md; do
  if [[ $check == --check ]]; then
    diff -u "$file" "$generated/$(basename "$file")" || stale=1
  elif ! cmp -s "$file" "$generated/$(basename "$file")"; then
    cp "$generated/$(basename "$file")" "$file"
    say "wrote $file"
  fi
done
((stale == 0)) || die "generated files are not current; run scripts/generate.sh"
