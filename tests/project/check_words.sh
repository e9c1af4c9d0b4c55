#!/usr/bin/env bash
# check_words.sh ROOT: checks that no file contains the words below, in identifiers, comments, messages or
# documents: earlier names of the things of this project, and British spellings of names of the APIs that it
# follows. Prints one line per word found.
set -euo pipefail
cd "${1:?give the root of the repository}"

# Extended regular expressions, lower case. A space also matches "_" and "-".
words='
bad ?samples? -> sample error
stand ins? -> replacement sample
outside producers? -> external producer
reader process(es)? -> worker process
data sets? -> dataset
ledgers? -> log
confined -> sandboxed
stokerctl (explain|tap|classes) -> show-batch, inspect, class-report
colour(s|ed)? -> color
grey -> gray
neighbour(s|ing)? -> neighbor
(un)?labelled -> labeled
(normal|initial|optim|serial|quant|random)is(e|ed|es|ing|ation) -> -ize
'

pattern=''
table=''
while read -r line; do
  [[ -n $line ]] || continue
  word=${line%% -> *}
  word=${word// /[ _-]}
  pattern+="${pattern:+|}$word"
  table+="$word"$'\t'"${line#* -> }"$'\n'
done <<<"$words"

# A word starts after a character that is not a letter or at an inner capital (kBadSample), and is
# not followed by a lower-case letter.
found=$(git grep --no-index --exclude-standard -nIoP "(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:$pattern)(?![a-z])" \
  -- . ':!tests/project/check_words.sh' || (($? == 1)))
[[ -n $found ]] || exit 0
awk -F '\t' '
  NR == FNR { if ($1 != "") { word[++count] = "^(" $1 ")$"; better[count] = $2 } next }
  {
    match($0, /:[0-9]+:/)
    text = substr($0, RSTART + RLENGTH)
    for (i = 1; i < count && tolower(text) !~ word[i]; i++);
    print substr($0, 1, RSTART + RLENGTH - 1) " " text " -> " better[i]
  }' <(printf '%s' "$table") <(printf '%s\n' "$found") >&2
exit 1
