#include "daemon/app/command_line.h"

#include <vector>

#include <gtest/gtest.h>

namespace stoker::app {
namespace {

ParsedCommandLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "stokerd");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

TEST(DaemonCommandLineTest, ParsesAllDocumentedOptions) {
  const auto parsed = parse({"--config", "a.yaml", "--run-dir", "runs/x", "--set",
                             "train.max_steps=1", "--set", "a=b", "--check-config"});
  ASSERT_TRUE(parsed.command.has_value());
  EXPECT_EQ(parsed.command->config, "a.yaml");
  EXPECT_EQ(parsed.command->run_dir, "runs/x");
  EXPECT_EQ(parsed.command->overrides, (std::vector<std::string>{"train.max_steps=1", "a=b"}));
  EXPECT_TRUE(parsed.command->check);
  EXPECT_FALSE(parsed.command->fresh);
}

TEST(DaemonCommandLineTest, ParsesEachAllowFlagSeparately) {
  for (const ChangeKind change :
       {ChangeKind::kModel, ChangeKind::kData, ChangeKind::kBatch, ChangeKind::kWorldSize}) {
    const std::string flag(allow_flag(change));
    const auto parsed = parse({"--config", "a.yaml", flag.c_str()});
    ASSERT_TRUE(parsed.command.has_value()) << flag;
    for (const ChangeKind other :
         {ChangeKind::kModel, ChangeKind::kData, ChangeKind::kBatch, ChangeKind::kWorldSize})
      EXPECT_EQ(parsed.command->allowed[other], other == change) << flag;
    EXPECT_EQ(parse({"--config", "a.yaml", "--fresh", flag.c_str()}).exit_code, ExitCode::kUsage)
        << "a run that starts over changes nothing";
  }
}

TEST(DaemonCommandLineTest, ReturnsSuccessForHelpAndVersion) {
  for (const char* const word : {"--help", "--version"}) {
    const auto parsed = parse({word});
    EXPECT_FALSE(parsed.command.has_value());
    EXPECT_EQ(parsed.exit_code, ExitCode::kSuccess) << word;
  }
}

TEST(DaemonCommandLineTest, RejectsInvalidArgumentsAsUsageErrors) {
  EXPECT_EQ(parse({}).exit_code, ExitCode::kUsage);
  EXPECT_EQ(parse({"--config"}).exit_code, ExitCode::kUsage);
  EXPECT_EQ(parse({"--config", "a", "--frehs"}).exit_code, ExitCode::kUsage);
  EXPECT_EQ(parse({"--config", "a", "--fresh", "--resume", "x"}).exit_code, ExitCode::kUsage)
      << "they contradict each other";
}

TEST(DaemonCommandLineTest, NamesUnknownOptionBeforeMissingConfig) {
  const auto error_of = [](std::vector<const char*> words) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(parse(std::move(words)).exit_code, ExitCode::kUsage);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(error_of({"--confg", "a.yaml"}).find("--confg"), std::string::npos);
  EXPECT_NE(error_of({}).find("--config is required"), std::string::npos);
  EXPECT_EQ(error_of({"nope.yaml"}),
            "stokerd: 'nope.yaml' is not an option; for a configuration, write stokerd --config "
            "nope.yaml\n");
  EXPECT_EQ(error_of({"nope.yaml", "--config"}).find("nope.yaml"), std::string::npos);
  EXPECT_NE(error_of({"a.yaml", "b.yaml"}).find("--config is required"), std::string::npos);
}

}  // namespace
}  // namespace stoker::app
