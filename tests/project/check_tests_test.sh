#!/usr/bin/env bash
# Puts one test at a time into a small tree and expects check_tests.py to find what is wrong with it, in its line.
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/check_tests.py
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/tests"
fail() {
  printf 'check_tests_test: %s\n' "$*" >&2
  exit 1
}
# expect_found LINE PART: of the message about the code on standard input.
expect_found() {
  local output
  cat >"$tree/tests/a_test.cc"
  if output=$("$check" "$tree" 2>&1); then fail "not found: $(<"$tree/tests/a_test.cc")"; fi
  [[ $output == "tests/a_test.cc:$1: "*"$2"* && $(wc -l <<<"$output") == 1 ]] || fail "line $1, '$2': $output"
}

cat >"$tree/tests/a_test.cc" <<'CODE'
void expect_ok(int value) { EXPECT_GT(value, 0) << "while (true)"; }
TEST(A, LoopsOverConstants) {
  for (const int i : {1, 2}) EXPECT_GT(i, 0);
  const std::vector<int> cases = {1};
  for (const int i : cases) EXPECT_GT(i, 0);
}
TEST(A, CallsHelper) {
  if (is_root()) expect_ok(2);
  expect_ok(1);
}
TEST(A, HasBothBranches) {
  if (is_root()) EXPECT_TRUE(a);
  else EXPECT_TRUE(b);
}
TEST(A, Skips) {
  if (!is_root()) { GTEST_SKIP() << "for root"; return; }
  std::jthread thread([&] { if (x) return; EXPECT_TRUE(a); });
  while (i < 3) ++i;
  while (is_running()) ::pause();
  EXPECT_EQ(f(), f());
}
CODE
"$check" "$tree" >/dev/null || fail "correct tests were rejected"
expect_found 1 'A.B: no assertion is made in every case' <<'CODE'
TEST(A, B) { if (x) EXPECT_TRUE(a); }
CODE
expect_found 2 'A.B: no assertion is made in every case' <<'CODE'

TEST_F(A, B) {
  for (const int i : found()) EXPECT_GT(i, 0);
}
CODE
expect_found 1 'A.B: no assertion is made in every case' <<'CODE'
TEST_P(A, B) {
  for (size_t i = 0; i < found.size(); ++i) { EXPECT_GT(found[i], 0); }
}
CODE
expect_found 1 'A.B: no assertion is made in every case' <<'CODE'
TEST(A, B) {
  run.on_row = [&](int row) { EXPECT_GT(row, 0); };
  run.train();
}
CODE
expect_found 3 'A.B: returns without a reason' <<'CODE'
TEST(A, B) {
  EXPECT_TRUE(a);
  if (!is_root()) return;  // GTEST_SKIP
  EXPECT_TRUE(b);
}
CODE
expect_found 1 'A.B: compares x.y with itself' <<'CODE'
TEST(A, B) { EXPECT_EQ(x.y, x.y) << "z"; }
CODE
expect_found 3 'a loop without a bound' <<'CODE'
TEST(A, B) {
  EXPECT_TRUE(a);
  while (!is_ready()) std::this_thread::yield();
}
CODE
expect_found 1 'a loop without a bound' <<'CODE'
void wait() { do { answer = ask(); } while (answer != "ok"); }
CODE
expect_found 2 'a loop without a bound' <<'CODE'
void wait() {
  for (;;) sleep(1);
}
CODE
cat >"$tree/tests/a_test.cc" <<'CODE'
void hang() {
  // check_tests: a worker that hangs
  while (true) sleep(1);
}
CODE
"$check" "$tree" >/dev/null || fail "an accepted loop was rejected"
rm "$tree/tests/a_test.cc"
if "$check" "$tree" 2>/dev/null; then fail "no tests are clean"; fi
