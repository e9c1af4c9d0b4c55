#!/usr/bin/env python3
"""Finds C++ tests that can pass without having tested anything: check_tests.py ROOT

Of the bodies of TEST, TEST_F and TEST_P below ROOT/tests:
  - all assertions are in an `if` without `else`, in a loop that may be empty, or in a lambda that is only passed on
  - a `return;` that no skip, assertion or HasFailure() explains
  - the same expression on both sides of an assertion
and of all code there, a loop that waits and has no bound, which ends as a timeout without a message.

A helper that asserts counts as an assertion. A comment "check_tests: REASON" in the line, or in the line before,
accepts it. Prints one line for each finding.
"""
import bisect
import pathlib
import re
import sys

# Literals and comments, whose text is blanked; line breaks remain.
BLANK = re.compile(
    r'R"(?P<end>[^()\\ ]{0,16})\((?:.|\n)*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*(?:.|\n)*?\*/'
)
TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\s*\(([^)]*)\)\s*\{", re.MULTILINE)
ASSERTION = re.compile(r"\b(?:EXPECT_\w+|ASSERT_\w+|ADD_FAILURE\w*|FAIL|SUCCEED)\s*\(")
FUNCTION = re.compile(r"\b(\w+)\s*\(")
BODY = re.compile(r"\s*(?:const\s*)?(?:noexcept\s*)?(?:override\s*)?(?:->\s*[\w:<>*&, ]+)?(?::(?!:)[^;{}]*(?:\{[^{}]*\}[^;{}]*)*)?\{")
NAMED_LAMBDA = re.compile(r"\bauto\s+(\w+)\s*=\s*\[")
CALL = re.compile(r"\b(\w+)\s*(?:<[\w:, ]+>)?\s*[({]")
STATEMENT = re.compile(r"\b(if(?:\s+constexpr)?|for|while|do)\b")
LAMBDA = re.compile(r"\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)?(?:mutable\s*)?(?:->\s*[\w:<>*&, ]+)?\{")  # after its captures
RUNS_LAMBDA = re.compile(r"(?:thread(?:\s+\w+)?|async|emplace_back|status_of_child|call_once)\s*\([^;{}]*$|[({]\s*launch::async,\s*$")
NO_FUNCTION = {"if", "for", "while", "switch", "catch", "return", "sizeof", "TEST", "TEST_F", "TEST_P", "TYPED_TEST", "defined"}
# What makes progress in a loop, or ends it: a change of a variable, a blocking system call, an assertion, an exit.
PROGRESS = re.compile(
    r"\+\+|--|[-+*/|&^]=|>>=|<<=|\b(?:push_back|emplace\w*|insert|erase|pop\w*|append|getline|remove_prefix|reset|step)\b|"
    r"\b(?:return|break|throw|co_return|_exit|is_over|eventually|stop_requested|should_stop)\b|\b(?:ASSERT|EXPECT|FAIL|GTEST_SKIP)|"
    r"steady_clock::now|\badvance\b|\b(\w+) = \1 [-+*]|::(?:pause|read|recv|recvfrom|recvmsg|send|accept4?|wait|waitpid|poll|usleep)\b|= *\w+\.(?:read|receive)|>> *\w"
)


def blanked(text):
    def blank(match):
        found = match[0]
        inner = re.sub(r"[^\n]", " ", found)
        return found[0] + inner[1:-1] + found[-1] if found[0] in "\"'" and len(found) > 1 else inner

    return BLANK.sub(blank, text)


class Source:
    """A file without the text of its literals, and the position of the bracket that closes each bracket."""

    def __init__(self, path, text):
        self.path, self.raw, self.text = path, text.split("\n"), blanked(text)
        self.lines = [0] + [match.end() for match in re.finditer("\n", self.text)]
        self.closing, stack = {}, []
        for match in re.finditer(r"[()\[\]{}]", self.text):
            if match[0] in "([{":
                stack.append((match[0], match.start()))
            elif stack and stack[-1][0] == {")": "(", "]": "[", "}": "{"}[match[0]]:
                self.closing[stack.pop()[1]] = match.start()

    def lambdas(self, begin, end):
        """First and last position of the body of each lambda that begins in the range."""
        for match in re.finditer(r"\[", self.text[begin:end]):
            close = self.closing.get(begin + match.start())
            body = close and LAMBDA.match(self.text, close + 1)
            if body and body.end() - 1 in self.closing:
                yield body.end() - 1, self.closing[body.end() - 1]

    def line(self, at):
        return bisect.bisect_right(self.lines, at)

    def accepted(self, at):
        line = self.line(at)
        return any("check_tests: " in self.raw[i - 1] for i in (line, line - 1) if i > 0)

    def end_of_statement(self, at):
        """Of the one that begins at `at`, after white space: the last position of its block, or its semicolon."""
        while at < len(self.text) and self.text[at].isspace():
            at += 1
        if self.text[at] == "{":
            return at, self.closing.get(at, at)
        begin = at
        while at < len(self.text) and self.text[at] not in ";}":
            at = self.closing.get(at, at) + 1
        return begin, at

    def statements(self, begin, end):
        """(keyword, header, first and last position of what it controls, begin, has else) of each in the range."""
        for match in STATEMENT.finditer(self.text, begin, end):
            keyword = match[1].split()[0]
            if keyword == "do":
                if not re.match(r"\s*\{", self.text[match.end() :]):
                    continue
                first, last = self.end_of_statement(match.end())
                tail = re.compile(r"\s*while\s*\(").match(self.text, last + 1)
                if tail:
                    close = self.closing.get(tail.end() - 1, tail.end())
                    yield "do", self.text[tail.end() : close], first, last, match.start(), False
                continue
            head = re.compile(r"\s*\(").match(self.text, match.end())
            if not head or head.end() - 1 not in self.closing:
                continue
            close = self.closing[head.end() - 1]
            # The end of do … while.
            if keyword == "while" and re.search(r"\}\s*$", self.text[max(0, match.start() - 40) : match.start()]):
                if re.match(r"\s*;", self.text[close + 1 :]):
                    continue
            first, last = self.end_of_statement(close + 1)
            has_else = re.compile(r"\s*else\b").match(self.text, last + 1) is not None
            yield keyword, self.text[head.end() : close], first, last, match.start(), has_else


def helpers_that_assert(sources):
    """Names of functions, and of lambdas with a name, that assert or call one that does."""
    bodies = {}
    for source in sources:
        for match in FUNCTION.finditer(source.text):
            close = source.closing.get(match.end() - 1)
            if match[1] in NO_FUNCTION or close is None:
                continue
            body = BODY.match(source.text, close + 1)
            if body and body.end() - 1 in source.closing:
                bodies.setdefault(match[1], []).append(source.text[body.end() : source.closing[body.end() - 1]])
        for match in NAMED_LAMBDA.finditer(source.text):
            for first, last in source.lambdas(match.end() - 1, match.end()):
                bodies.setdefault(match[1], []).append(source.text[first:last])
    asserting = {name for name, found in bodies.items() if any(ASSERTION.search(body) for body in found)}
    calls = {name: set().union(*(CALL.findall(body) for body in found)) for name, found in bodies.items()}
    while more := {name for name in calls if name not in asserting and calls[name] & asserting}:
        asserting |= more
    return asserting


def is_filled(values, before):
    """Whether a container is a literal, a constant, or a variable with a literal as its first value."""
    values = values.strip()
    if re.match(r"\{|(?:\w+::)*k[A-Z]\w*|std::(?:vector|map|array|initializer_list|set|to_array)\b", values):
        return True
    name = re.match(r"\w+", values)
    return name is not None and bool(
        re.search(r"\b" + name[0] + r"(?:\[\])?\s*(?:=\s*[\w:<>, ]*\{[^}]|\{[^}]|=\s*\"|\(\d)", before)
        or re.search(r"\b" + name[0] + r" = std::(?:as_bytes|span)\b", before)
    )


def may_not_run(keyword, header, has_else, before):
    """Whether what the statement controls may not run at all; `before`: the text of the test before it."""
    if keyword == "do":
        return False
    if keyword == "if":
        return not has_else
    if keyword == "while":
        return True
    if ";" in header:  # of those with a counter, over a container
        size = re.search(r"(?<!<= )\b([\w.:<>]+?)(?:\.|->)(?:size|end)\(\)", header.split(";")[1])
        return size is not None and not is_filled(size[1], before)
    return not is_filled(re.split(r"(?<!:):(?!:)", header, maxsplit=1)[-1], before)


def check_test(source, name, begin, end, asserting, findings):
    text = source.text
    conditional = [
        (first, last) for keyword, header, first, last, at, has_else in source.statements(begin, end)
        if may_not_run(keyword, header, has_else, text[begin:at]) and not source.accepted(at)
    ]
    lambdas = list(source.lambdas(begin, end))
    deferred = [(first, last) for first, last in lambdas if not RUNS_LAMBDA.search(text[begin:first].rsplit("[", 1)[0])]
    positions = [match.start() for match in ASSERTION.finditer(text, begin, end)]
    positions += [match.start() for match in CALL.finditer(text, begin, end) if match[1] in asserting]
    is_in = lambda at, ranges: any(first <= at <= last for first, last in ranges)
    if not any(not is_in(at, conditional) and not is_in(at, deferred) for at in positions) and not source.accepted(begin):
        findings.append((source, begin, f"{name}: no assertion is made in every case; require that the condition holds, or count"))
    for match in re.finditer(r"\breturn\s*;", text[begin:end]):
        at = begin + match.start()
        if is_in(at, lambdas) or source.accepted(at):
            continue
        before = re.split(r"[;{}]", text[begin:at])[-1]  # the header of an `if` without a block
        if not before.strip():
            before = re.split(r"[{}]", text[begin:at])[-1]
        if not re.search(r"EXPECT_|ASSERT_|ADD_FAILURE|GTEST_SKIP|Has\w*Failure|IsSkipped", before):
            findings.append((source, at, f"{name}: returns without a reason; GTEST_SKIP() with a reason, or an assertion"))
    for match in re.finditer(r"\b(?:EXPECT|ASSERT)_(?:EQ|LE|GE|DOUBLE_EQ|FLOAT_EQ|STREQ)\s*\(", text[begin:end]):
        open_at = begin + match.end() - 1
        inside = text[open_at + 1 : source.closing.get(open_at, open_at)]
        half = [" ".join(part.split()) for part in inside.split(",")]
        if len(half) == 2 and half[0] == half[1] and "(" not in half[0] and not source.accepted(open_at):
            findings.append((source, open_at, f"{name}: compares {half[0]} with itself"))


def check_loops(source, findings):
    for keyword, header, first, last, at, _ in source.statements(0, len(source.text)):
        parts = header.split(";")
        if keyword == "if" or (keyword == "for" and (len(parts) < 3 or parts[1].strip() and parts[2].strip())):
            continue
        if not PROGRESS.search(header + " " + source.text[first : last + 1]) and not source.accepted(at):
            findings.append((source, at, "a loop without a bound; use eventually() or Patience of tests/support/eventually.h"))


def main():
    root = pathlib.Path(sys.argv[1])
    sources = [
        Source(path.relative_to(root), path.read_text(encoding="utf-8", errors="replace"))
        for path in sorted((root / "tests").rglob("*")) if path.suffix in (".cc", ".h", ".cu")
    ]
    asserting, findings, num_tests = helpers_that_assert(sources), [], 0
    for source in sources:
        for match in TEST.finditer(source.text):
            num_tests += 1
            name = ".".join(part.strip() for part in match[1].split(","))
            end = source.closing.get(match.end() - 1, match.end())
            check_test(source, name, match.end(), end, asserting, findings)
        check_loops(source, findings)
    for source, at, what in findings:
        print(f"{source.path}:{source.line(at)}: {what}", file=sys.stderr)
    if not sources:
        print(f"{root}/tests has no sources", file=sys.stderr)
    if findings or not sources:
        return 1
    print(f"{num_tests} tests are clean")
    return 0


if __name__ == "__main__":
    sys.exit(main())
