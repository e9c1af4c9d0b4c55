#!/usr/bin/env bash
# skipped_tests_test.sh ROOT: check_skips.py, by skipped_tests of scripts/lib.sh, with results of ctest (skipped cases of
# GoogleTest, a skipped script, a test that ran) and of a GoogleTest program; and tests/expected_skips.txt itself.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$1/scripts/lib.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  printf 'skipped_tests_test: %s\n' "$*" >&2
  exit 1
}
cat >"$scratch/ctest.xml" <<'XML'
<testsuite name="(empty)" tests="4" failures="0" disabled="0" skipped="3">
	<testcase name="A.First" classname="A.First" time="0.1" status="notrun">
		<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
		<system-out>[ RUN      ] A.First
tests/a_test.cc:37: Skipped
no &quot;device&quot; &amp; no driver
[  SKIPPED ] A.First (3 ms)
</system-out>
	</testcase>
	<testcase name="A.Second" classname="A.Second" time="0.1" status="notrun">
		<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
		<system-out>[ RUN      ] A.Second
tests/a_test.cc:37: Skipped
no &quot;device&quot; &amp; no driver
[  SKIPPED ] A.Second (3 ms)
</system-out>
	</testcase>
	<testcase name="Project.Script" classname="Project.Script" time="0.1" status="notrun">
		<skipped message="SKIP_RETURN_CODE=77"/>
		<system-out>a line
needs a server
</system-out>
	</testcase>
	<testcase name="A.Passes" classname="A.Passes" time="0.1" status="run">
		<system-out>[ RUN      ] A.Passes
</system-out>
	</testcase>
</testsuite>
XML
cat >"$scratch/program.xml" <<'XML'
<testsuites tests="2" failures="0" disabled="0" errors="0" name="AllTests">
  <testsuite name="B" tests="2" failures="0" disabled="0" skipped="1" errors="0">
    <testcase name="Runs" status="run" result="completed" classname="B" />
    <testcase name="Skips" status="run" result="skipped" classname="B">
      <skipped message="tests/b_test.cc:5&#x0A;no program"><![CDATA[tests/b_test.cc:5
no program]]></skipped>
    </testcase>
  </testsuite>
</testsuites>
XML
echo '<testsuites tests="0"/>' >"$scratch/empty.xml"
cat >"$scratch/table" <<'TABLE'
# A comment.
no:/no/file        A.*      no "device"
has:/no/file       A.*      no
without:no-such-p  B.Skips  no * program
without:no-such-p  B.Skips  no program
TABLE
expect() {
  local code=$1 expected=$2 printed status=0
  shift 2
  printed=$(skipped_tests --table "$scratch/table" "$@" 2>&1) || status=$?
  [[ $printed == "$expected" && $status == "$code" ]] || fail "$*: expected code $code
$expected
got code $status
$printed"
}
first='2 skipped (A.First, …), no:/no/file: no "device" & no driver'
script='Project.Script was skipped, which tests/expected_skips.txt does not expect here: needs a server'
expect 1 "$first
$script" "$scratch/ctest.xml"
expect 0 '1 skipped (B.Skips), without:no-such-p: no program' "$scratch/program.xml"
expect 1 'B.Skips was skipped, which tests/expected_skips.txt does not expect here: no program' --all "$scratch/program.xml"
expect 1 "$scratch/empty.xml: has no test" "$scratch/empty.xml"
echo 'not-root Project.* needs' >>"$scratch/table"
if ((EUID == 0)); then
  expect 1 "$first
$script" "$scratch/ctest.xml"
else
  expect 0 "$first
1 skipped (Project.Script), not-root: needs a server
root adds 1 tests: Project.Script" "$scratch/ctest.xml"
fi
echo 'always *' >"$scratch/table"
expect 1 "$scratch/table:1: write CONDITION  TEST  REASON" "$scratch/ctest.xml"

# Each condition is one that the script knows, and each reason is one that a test gives.
conditions=$(awk '!/^#/ && NF { print $1 }' "$root/tests/expected_skips.txt" | sort -u)
for condition in $conditions; do
  echo "$condition A.* no" >"$scratch/table"
  skipped_tests --table "$scratch/table" "$scratch/ctest.xml" >"$scratch/out" 2>&1 || true
  if grep -q 'there is no condition' "$scratch/out"; then fail "$(<"$scratch/out")"; fi
done
while read -r _ _ reason; do
  part=$(tr '*' '\n' <<<"$reason" | awk '{ gsub(/^ +| +$/, ""); if (length > length(longest)) longest = $0 } END { print longest }')
  grep -rqF --include='*.cc' --include='*.h' --include='*.sh' --include='*.py' -- "$part" "$root"/{tests,daemon,shared} ||
    fail "tests/expected_skips.txt: no test gives the reason '$reason'"
done < <(grep -vE '^(#|$)' "$root/tests/expected_skips.txt")
