#!/usr/bin/env bash
# check_words.sh ROOT: checks that no file contains the words below, in identifiers, comments,
# messages or documents. They are archaic, informal or British, or a standard term exists. Prints
# one line per word found.
set -euo pipefail
cd "${1:?give the root of the repository}"

# Extended regular expressions, lower case. A space also matches "_" and "-".
words='
anew -> again
whoever|somebody|everybody -> the caller, a user, another process
nobody -> no process, no user
strangers? -> another process, any user
pictures? -> image
colour(s|ed)? -> color
grey -> gray
neighbour(s|ing)? -> neighbor
behaviours? -> behavior
favour(s|ed|ite)? -> favor
(normal|initial|optim|serial|synchron|general|minim|maxim|material|final|recogn|random)is(e|ed|es|ing|ation) -> -ize
troubles? -> error, failure
mistakes? -> error, misclassified sample
bad ?samples? -> sample error
stand ins? -> replacement sample
outside producers? -> external producer
reader process(es)? -> worker process
data sets? -> dataset
(go|goes|going|went|gone) on -> continue, resume
for ever|for good -> forever, permanently
at once -> immediately, together
cut off -> truncated
damaged -> corrupt
torn -> partial
(left|leaves?|leaving) out -> omit, drop
refuses?|refusing -> reject
dies|died -> exit, crash
besides? -> next to, in addition to
so many -> the number of
of (its|their) own -> own, separate
lies -> is, is located
look(s|ed|ing)? at -> check, read, inspect
promises -> declares
ledgers? -> log
remed(y|ies) -> suggested fix
(gives?|gave) way|hand(s|ed)? on|obeys?|winds? up|stands? still|in vain -> yield, requeue, handle, shut down, stall
asked for -> requested
for want of -> because there is no
stokerctl (explain|tap|classes) -> show-batch, inspect, class-report
(data|sets?|datasets?|files) (that )?grows? -> refreshed dataset, is appended to
(un)?labelled -> labeled
promised -> declared, expected
confined -> sandboxed, restricted
whole numbers? (is|are|per|from|needed) -> integer
there twice -> duplicate
that (is|are) needed -> required
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
