#!/usr/bin/env bash
# skipped_tests of scripts/lib.sh against a result file of ctest: skipped cases of GoogleTest, a
# skipped script, a test that ran.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$1/scripts/lib.sh"
results=$(mktemp)
trap 'rm -f "$results"' EXIT
cat >"$results" <<'XML'
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
		<system-out>needs a server
</system-out>
	</testcase>
	<testcase name="A.Passes" classname="A.Passes" time="0.1" status="run">
		<system-out>[ RUN      ] A.Passes
</system-out>
	</testcase>
</testsuite>
XML
expected='2 skipped (A.First, …): no "device" & no driver
1 skipped (Project.Script): needs a server'
printed=$(skipped_tests "$results")
if [[ $printed != "$expected" ]]; then
  printf 'skipped_tests_test: expected\n%s\ngot\n%s\n' "$expected" "$printed" >&2
  exit 1
fi
