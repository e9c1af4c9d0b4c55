#!/usr/bin/env bash
# shellcheck disable=SC2016  # the backticks are Markdown
# check_documents.sh ROOT: checks that everything the documents link to or mention exists, that row
# numbers of tables are unique, that none of them contains a machine-specific path, and that
# docs/README.md links to every page.
set -euo pipefail
cd "${1:?give the root of the repository}"
bad=0
complain() {
  printf '%s\n' "$*" >&2
  bad=$((bad + 1))
}

mapfile -t documents < <(find . -maxdepth 1 -name '*.md'; find docs -name '*.md' 2>/dev/null)
((${#documents[@]} > 0)) || complain "no documents found under $1"

# [text](target): relative to the document; the part after # is a heading in the target.
check_links() {
  local document=$1 target file anchor
  while read -r target; do
    case $target in http://* | https://* | mailto:*) continue ;; esac
    file=${target%%#*}
    anchor=
    [[ $target != *'#'* ]] || anchor=${target#*#}
    if [[ -z $file ]]; then file=$document; else file=$(dirname "$document")/$file; fi
    if [[ ! -e $file ]]; then
      complain "$document: link to $target: no such file"
    elif [[ -n $anchor && $file == *.md ]] && ! headings "$file" | grep -qxF "$anchor"; then
      complain "$document: link to $target: no such heading"
    fi
  done < <(grep -oE '\]\([^) ]+\)' "$document" | sed -E 's/^\]\((.*)\)$/\1/')
}

# The headings of a file as the anchors that Git hosts generate.
headings() { grep -E '^#+ ' "$1" | sed -E 's/^#+ +//' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'; }

# Words such as `shared/ring/shm_ring.h` or scripts/test.sh: a path below one of our folders must
# exist. Patterns (* < { …) are not paths.
check_paths() {
  local document=$1 path
  while read -r path; do
    path=${path%%[.,:;]}
    [[ -e $path ]] || complain "$document: names $path, which does not exist"
  done < <(grep -oE '(^|[^A-Za-z0-9_./<*{-])(scripts|shared|daemon|evaluator|tests|cmake|config|docs|systemd|bench|\.ci)/[A-Za-z0-9_./@*{<-]+' \
    "$document" | sed -E 's/^[^a-z.]//' | grep -vE '[*{<]|/$' | sort -u)
}

# `tests/…/x_test.cc`: `Name`, `Name` means that the file contains tests with these names.
check_tests() {
  local document=$1 claim file name
  while read -r claim; do
    file=$(cut -d '`' -f 2 <<<"$claim")
    [[ -e $file ]] || continue  # reported by check_paths
    while read -r name; do
      tr '\n' ' ' <"$file" | grep -qE "TEST(_F|_P)?\([A-Za-z0-9_]+, +$name\)" ||
        complain "$document: names the test $name, which $file does not have"
    done < <(cut -d '`' -f 3- <<<"$claim" | grep -oE '`[^`]+`' | tr -d '`')
  done < <(grep -oE '`tests/[^`]+_test\.cc`: `[A-Z][A-Za-z0-9_]+`(, `[A-Z][A-Za-z0-9_]+`)*' "$document" | sort -u)
}

# All tests, one Suite.Name per line. With -z a line break is white space.
list_tests() {
  grep -rzaohE --include='*_test.cc' 'TEST(_F|_P)?\([A-Za-z0-9_]+,[[:space:]]+[A-Za-z0-9_]+\)' tests 2>/dev/null |
    tr '\0\n' '\n ' | sed -E 's/^[^(]*\(([A-Za-z0-9_]+), +([A-Za-z0-9_]+)\)$/\1.\2/' || true
}
tests=$(list_tests)

# `RingTest.IsRound` means that a file contains this test of this suite.
check_suites() {
  local document=$1 name
  while read -r name; do
    grep -qxF "$name" <<<"$tests" || complain "$document: names the test $name, which does not exist"
  done < <(grep -oE '`[A-Z][A-Za-z0-9]*Test\.[A-Z][A-Za-z0-9]*`' "$document" | tr -d '`' | sort -u)
}

# Rows of a table that start with numbers, as `| 2, 3. a fault |`: each number is that of one row.
check_rows() {
  local document=$1 number
  while read -r number; do
    complain "$document: row $number occurs twice"
  done < <(grep -oE '^\| [0-9]+(, [0-9]+)*\. ' "$document" | grep -oE '[0-9]+' | sort -n | uniq -d)
}

# The index links to every page.
check_index() {
  local page name
  [[ -e docs/README.md ]] || return 0
  for page in docs/*.md; do
    name=${page##*/}
    [[ $name == README.md ]] || grep -qF "]($name" docs/README.md || complain "docs/README.md: has no link to $name"
  done
}

# Machine-specific paths are not allowed. System paths that exist on every Debian are.
check_machine_paths() {
  local document=$1 found
  if found=$(grep -nE '(^|[^A-Za-z0-9_.~}-])/(work|home|root|Users|mnt|data|scratch)/' "$document"); then
    complain "$document: contains a path of a specific machine: $found"
  fi
}

for document in "${documents[@]}"; do
  check_links "$document"
  check_paths "$document"
  check_tests "$document"
  check_suites "$document"
  check_rows "$document"
  check_machine_paths "$document"
done
check_index
((bad == 0)) || exit 1
printf '%d documents name only what exists\n' "${#documents[@]}"
