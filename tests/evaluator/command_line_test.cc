#include "evaluator/command_line.h"

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

ParsedCommandLine parse(std::vector<const char*> words) {
  words.insert(words.begin(), "stoker-eval");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

TEST(EvaluatorCommandLineTest, RequiresRunDirUnlessCheckpointIsGiven) {
  const auto named = parse({"--checkpoint", "a", "--checkpoint", "b", "--config", "c.yaml"});
  ASSERT_TRUE(named.command.has_value());
  EXPECT_EQ(named.command->checkpoints, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parse({}).exit_code, ExitCode::kUsage);
  EXPECT_EQ(parse({"--follow"}).exit_code, ExitCode::kUsage);
}

TEST(EvaluatorCommandLineTest, AcceptsUntilStepOnlyWithFollow) {
  const auto until = parse({"--run-dir", "r", "--follow", "--until-step", "2000"});
  ASSERT_TRUE(until.command.has_value());
  EXPECT_EQ(until.command->until, 2000u);
  EXPECT_EQ(parse({"--run-dir", "r", "--until-step", "2000"}).exit_code, ExitCode::kUsage);
  for (const char* const wrong : {"0", "-1", "soon"})
    EXPECT_EQ(parse({"--run-dir", "r", "--follow", "--until-step", wrong}).exit_code,
              ExitCode::kUsage)
        << wrong;
}

TEST(EvaluatorCommandLineTest, TrustsConfigurationsOfOthersOnlyOnRequest) {
  EXPECT_FALSE(parse({"--run-dir", "r"}).command->trust);
  EXPECT_TRUE(parse({"--run-dir", "r", "--trust"}).command->trust);
}

TEST(EvaluatorCommandLineTest, RejectsConflictingOptions) {
  EXPECT_EQ(parse({"--run-dir", "r", "--once", "--follow"}).exit_code, ExitCode::kUsage);
  EXPECT_EQ(parse({"--run-dir", "r", "--follow", "--checkpoint", "c"}).exit_code, ExitCode::kUsage);
  EXPECT_EQ(parse({"--run-dir", "r", "--generate", "9", "--checkpoint", "c"}).exit_code,
            ExitCode::kUsage);
  for (const char* const option : {"--prompt", "--temperature", "--top-k", "--top-p"})
    EXPECT_EQ(parse({"--run-dir", "r", option, "1"}).exit_code, ExitCode::kUsage) << option;
}

TEST(EvaluatorCommandLineTest, GeneratesAsTheConfigurationDoesByDefault) {
  EXPECT_FALSE(parse({"--run-dir", "r"}).command->generate);
  EXPECT_EQ(parse({"--run-dir", "r", "--generate", "9"}).command->generate,
            config::GenerateConfig{.max_new_tokens = 9});
  EXPECT_EQ(parse({"--run-dir", "r", "--generate", "9", "--prompt", "x", "--temperature", "0",
                   "--top-k", "3", "--top-p", "0.5"})
                .command->generate,
            (config::GenerateConfig{
                .max_new_tokens = 9, .prompt = "x", .temperature = 0, .top_k = 3, .top_p = 0.5}));
}

}  // namespace
}  // namespace stoker::evaluator
