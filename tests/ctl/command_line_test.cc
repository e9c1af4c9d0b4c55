#include "ctl/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::HasSubstr;

struct Parsed {
  ParsedCommandLine result;
  std::string out;
  std::string err;
};
Parsed parse(std::vector<const char*> words) {
  words.insert(words.begin(), "stokerctl");
  std::ostringstream out, err;
  auto result = parse_command_line(static_cast<int>(words.size()), words.data(), out, err);
  return {std::move(result), out.str(), err.str()};
}

TEST(CtlCommandLineTest, AcceptsRunDirBeforeOrAfterCommand) {
  for (const auto& words : {std::vector<const char*>{"--run-dir", "a", "--json", "list"},
                            std::vector<const char*>{"list", "--run-dir", "a", "--json"}}) {
    const auto parsed = parse(words);
    ASSERT_TRUE(parsed.result.command.has_value()) << parsed.err;
    EXPECT_EQ(parsed.result.command->action, Action::kList);
    EXPECT_EQ(parsed.result.command->run_dir, "a");
    EXPECT_TRUE(parsed.result.command->json);
  }
}

TEST(CtlCommandLineTest, ParsesOptionsOfEachCommand) {
  const auto set = parse({"set", "optimizer.lr", "1e-4"});
  ASSERT_TRUE(set.result.command.has_value()) << set.err;
  EXPECT_EQ(set.result.command->action, Action::kCommand);
  const auto get = parse({"get", "train"});
  ASSERT_TRUE(get.result.command.has_value()) << get.err;
  EXPECT_EQ(get.result.command->action, Action::kSettings);
  EXPECT_EQ(get.result.command->settings.key, "train");
  EXPECT_EQ(parse({"unset", "log.level"}).result.command->request,
            control::Command(control::UnsetSetting{"log.level"}));
  EXPECT_EQ(set.result.command->request,
            control::Command(control::SetSetting{"optimizer.lr", "1e-4"}));
  EXPECT_EQ(parse({"checkpoint"}).result.command->request,
            control::Command(control::SaveCheckpoint{}));
  EXPECT_EQ(parse({"checkpoint", "--no-wait"}).result.command->request,
            control::Command(control::SaveCheckpoint{.wait = false}));
  EXPECT_EQ(parse({"profile", "20", "--no-wait"}).result.command->request,
            control::Command(control::Profile{.steps = 20, .wait = false}));
  EXPECT_EQ(parse({"events", "checkpoint *"}).result.command->subscription.events, "checkpoint *");
  EXPECT_TRUE(parse({"--socket", "b", "logs", "-f"}).result.command->follow);
  EXPECT_EQ(parse({"profile", "20", "--kernels"}).result.command->request,
            control::Command(control::Profile{.steps = 20, .kernels = true}));
  const auto inspect = parse({"inspect", "*", "--every", "5"});
  EXPECT_EQ(inspect.result.command->request,
            control::Command(control::OpenInspection{.glob = "*", .every = 5}));
  const auto gradients = parse({"inspect", "*", "--gradients", "--histograms"});
  EXPECT_EQ(gradients.result.command->request,
            control::Command(control::OpenInspection{
                .glob = "*", .parameters = false, .activations = false, .histograms = true}));
  const control::OpenInspection inputs{.glob = "*",
                                       .steps = 1,
                                       .parameters = false,
                                       .gradients = false,
                                       .activations = false,
                                       .inputs = true};
  EXPECT_EQ(parse({"inspect", "--inputs"}).result.command->request, control::Command(inputs));
  auto followed = inputs;
  followed.steps = 0;
  followed.every = 10;
  followed.glob = "label";
  EXPECT_EQ(parse({"inspect", "label", "--inputs", "--every", "10"}).result.command->request,
            control::Command(followed));
  EXPECT_THAT(parse({"inspect", "--gradients"}).err, HasSubstr("GLOB is required"));
  EXPECT_EQ(parse({"verify"}).result.command->selector, "latest");
  EXPECT_EQ(parse({"verify", "1200"}).result.command->selector, "1200");
  EXPECT_EQ(parse({"diff", "best", "1200"}).result.command->second_selector, "1200");
  const auto exported = parse({"export", "best", "--format", "torch", "--include", "all"});
  ASSERT_TRUE(exported.result.command.has_value()) << exported.err;
  EXPECT_EQ(exported.result.command->selector, "best");
  EXPECT_EQ(exported.result.command->format, ExportFormat::kTorch);
  EXPECT_EQ(exported.result.command->content, ExportContent::kAll);
  EXPECT_EQ(exported.result.command->output, "");
  EXPECT_TRUE(parse({"verify", "--all"}).result.command->all);
  EXPECT_EQ(parse({"show-batch", "7"}).result.command->step, 7u);
  EXPECT_EQ(parse({"--socket", "b", "show-batch", "7"}).result.command->step, 7u);
  EXPECT_EQ(parse({"pause", "--release"}).result.command->request,
            control::Command(control::Pause{.release = true}));
  EXPECT_EQ(parse({"set", "--dry-run", "log.level", "debug"}).result.command->request,
            control::Command(control::SetSetting{"log.level", "debug", true}));
  EXPECT_TRUE(parse({"reload", "--dry-run"}).result.command->dry_run);
  EXPECT_TRUE(parse({"export", "best", "--dry-run"}).result.command->dry_run);
  const auto logs = parse({"logs", "-n", "5", "-f", "--evaluator"});
  ASSERT_TRUE(logs.result.command.has_value()) << logs.err;
  EXPECT_EQ(logs.result.command->lines, 5u);
  EXPECT_TRUE(logs.result.command->follow);
  EXPECT_TRUE(logs.result.command->evaluator);
}

TEST(CtlCommandLineTest, RejectsUsageErrorsWith64AndOneLine) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> cases = {
      {{}, "missing command; commands: status top watch threads pause"},
      {{"lsit"}, "no command 'lsit'; did you mean 'list'?"},
      {{"xyzzy"}, "no command 'xyzzy'; commands: status"},
      {{"no\x1b[2J"}, "no command 'no?[2J'"},
      {{"--bogus", "list"}, "--bogus"},
      {{"list", "more"}, "more"},
      {{"set"}, "KEY is required"},
      {{"set", "--dryrun"}, "--dryrun"},
      {{"set", "optimizer.lr"}, "VALUE is required"},
      {{"unset"}, "KEY is required"},
      {{"plot", "--output", "loss.jpg"}, "'loss.jpg' has another ending than .svg, .png or .html"},
      {{"get", "log", "train"}, "train"},
      {{"verify", "newest"}, "newest"},
      {{"verify", "-3"}, "-3"},
      {{"verify", "99999999999999999999"}, "99999999999999999999"},
      {{"verify", "3", "--all"}, "--all"},
      {{"diff", "3", "worst"}, "'worst' is not a valid step; use an integer, latest or best"},
      {{"export"}, "STEP is required"},
      {{"export", "3", "--format", "pickle"}, "pickle"},
      {{"export", "3", "--include", "rng"}, "rng"},
      {{"show-batch"}, "N is required"},
      {{"show-batch", "0"}, "the first step is 1"},
      {{"logs", "-n", "-1"}, "--lines"},
      {{"logs", "-n"}, "--lines"},
      {{"--run-dir", "a", "--socket", "b", "status"}, "excludes"},
      {{"--socket", "b", "list"}, "use --run-dir"},
      {{"--socket", "b", "profile", "5", "--output", "c"}, "use --run-dir"},
      {{"profile", "5", "--output", "c", "--no-wait"}, "omit --no-wait"},
      {{"evaluate"}, "STEP is required"},
      {{"evaluate", "newest"}, "newest"},
      {{"--socket", "b", "evaluate", "latest"}, "use --run-dir"},
      {{"--socket", "b", "evaluate", "5", "--wait"}, "use --run-dir"},
      {{"--socket", "b", "logs", "--all"}, "use --run-dir"},
      {{"--socket", "b", "logs", "-f", "--evaluator"}, "use --run-dir"},
      {{"events", ""}, "1 to 256 bytes"},
      {{"--json", "plot"}, "metrics/*.jsonl"},
  };
  for (const auto& [words, text] : cases) {
    const auto parsed = parse(words);
    EXPECT_FALSE(parsed.result.command.has_value()) << text;
    EXPECT_EQ(parsed.result.exit_code, ExitCode::kUsage) << text;
    EXPECT_EQ(parsed.out, "");
    EXPECT_THAT(parsed.err, HasSubstr(text));
    EXPECT_EQ(std::count(parsed.err.begin(), parsed.err.end(), '\n'), 1) << parsed.err;
  }
}

TEST(CtlCommandLineTest, ShowsExamplesInHelpWithinTerminalWidth) {
  const auto help = parse({"--help"});
  EXPECT_EQ(help.result.exit_code, ExitCode::kSuccess);
  EXPECT_FALSE(help.result.command.has_value());
  EXPECT_THAT(help.out, HasSubstr("set optimizer.lr 1e-4"));
  EXPECT_THAT(help.out, HasSubstr("Exit codes"));
  EXPECT_LE(widest_line(help.out), 100u);
  EXPECT_THAT(parse({"verify", "--help"}).out, HasSubstr("Usage: stokerctl verify"));
  EXPECT_THAT(parse({"--version"}).out, HasSubstr("stokerctl "));
}

using RunLocatorTest = CtlTest;

TEST_F(RunLocatorTest, ReportsInvalidRunDirectoryInOneLine) {
  std::filesystem::create_directories(path("empty"));
  write_file(path("file"), "x");
  for (const char* command : {"list", "verify", "report", "plot", "logs", "status", "pause"}) {
    for (const char* name : {"empty", "file", "nowhere"}) {
      const CommandResult result = run_with_arguments({"--run-dir", path(name), command});
      EXPECT_EQ(result.code, 78) << command;
      EXPECT_EQ(result.out, "");
      EXPECT_THAT(result.err, HasSubstr(path(name)));
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    }
  }
}

TEST_F(RunLocatorTest, UsesCurrentDirectoryWhenItContainsRun) {
  const auto before = std::filesystem::current_path();
  write_train_metrics(3);
  std::filesystem::current_path(layout().root());
  const CommandResult without = run_with_arguments({"report"});
  write_file(layout().config_file(), "run: {}\n");
  const CommandResult with = run_with_arguments({"report"});
  std::filesystem::current_path(before);
  EXPECT_EQ(without.code, 78);
  EXPECT_THAT(without.err, HasSubstr("use --run-dir DIR"));
  EXPECT_EQ(with.code, 0) << with.err;
}

// In groups, and not wider than a terminal, for each command.
TEST(CtlCommandLineTest, ShowsHelpInGroupsWithin80Columns) {
  const std::string help = parse({"--help"}).out;
  EXPECT_LE(widest_line(help), 80u);
  // A paragraph as Python's textwrap.fill() wraps it.
  EXPECT_THAT(help,
              HasSubstr("events, get, set,\nunset, profile and inspect need a running stokerd; "
                        "status and runs ask it if\nthere is one, and"));
  size_t at = 0;
  for (const char* const group :
       {"\nWatch a run:\n", "\nControl training:\n", "\nLook inside a run:\n", "\nCheckpoints:\n",
        "\nCompare runs:\n"}) {
    const size_t found = help.find(group);
    ASSERT_NE(found, std::string::npos) << group;
    EXPECT_GT(found, at);
    at = found;
  }
  EXPECT_THAT(help, ::testing::Not(HasSubstr("print-candidates")));
  for (const char* const command :
       {"status", "export", "inspect", "plot", "logs", "set", "profile"}) {
    const std::string text = parse({command, "--help"}).out;
    EXPECT_LE(widest_line(text), 80u) << text;
    EXPECT_THAT(text, ::testing::Not(HasSubstr("Excludes:")));
  }
}

}  // namespace
}  // namespace stoker::ctl
