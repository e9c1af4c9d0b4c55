// Text with a tokenizer, from the file to generated text.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "tests/support/tokenizer_files.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class TokenizerRunTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    write("t.json", to_json(small_tokenizer()));
    std::string text;
    while (text.size() < 20000) text += "to be or not to be\n";
    write("corpus.txt", text);
  }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }
  // Windows of 13 tokens: with 16, those of training have only some of the places in lines of 12 tokens,
  // and those of evaluation the others.
  std::string config(const std::string& model = "", const std::string& tokenizer = "t.json") const {
    return write_config(
        "data:\n  train: {format: text, path: " + path("corpus.txt") +
        ", tokenizer: {path: " + path(tokenizer) +
        "}, split: [0.0, 0.9]}\n  val: {format: text, path: " + path("corpus.txt") +
        ", split: [0.9, 1.0]}\nmodel: {name: gpt, num_layers: 1, num_heads: 2, embed_dim: 16, "
        "context_length: 13" +
        model +
        "}\ntrain: {max_steps: 20, micro_batch_size: 4, num_threads: 1}\n"
        "checkpoint: {save_every_steps: 10}\neval: {generate: {max_new_tokens: 20, prompt: to}}\n");
  }
};

// ---- Each kind of tokenizer

struct TokenizerKind {
  const char* name;
  std::string (*file)();
  uint64_t vocab_size;
  uint64_t tokens_per_line;
  const char* end_token;  // in the log
  const char* generated;  // after "to"
};

std::string small_json() { return to_json(small_tokenizer()); }
std::string small_tiktoken() { return to_tiktoken(tiktoken_pairs()); }

class TokenizerKindTest : public TokenizerRunTest,
                          public ::testing::WithParamInterface<TokenizerKind> {
 protected:
  void SetUp() override {
    TokenizerRunTest::SetUp();
    write("tokenizer", GetParam().file());
  }
  std::string config(const std::string& model = "") const {
    return TokenizerRunTest::config(model, "tokenizer");
  }
};

TEST_P(TokenizerKindTest, TrainsEvaluatesAndGeneratesText) {
  ASSERT_EQ(train(config(), run_dir(),
                  {"--set", "train.max_steps=120", "--set", "optimizer.lr=0.02", "--set",
                   "checkpoint.save_every_steps=120", "--set", "eval.generate.temperature=0"})
                .code,
            0)
      << log_of("stokerd");
  const std::string text = text_of(path("corpus.txt"));
  const uint64_t tokens = count_of(text, "\n") * GetParam().tokens_per_line + 1;
  EXPECT_THAT(log_of("stokerd"),
              HasSubstr("text tokenized dataset=train documents=1 bytes=" +
                        std::to_string(text.size()) + " tokens=" + std::to_string(tokens) +
                        " end_token=" + GetParam().end_token + " path="));
  EXPECT_THAT(text_of(newest_checkpoint(run_dir()) + "/manifest.json"),
              HasSubstr("\"tokenizer\":\"" + sha256_hex(GetParam().file()) + "\""));
  const auto evaluated = evaluator(run_dir(), {"--once"}).wait(120s);
  ASSERT_TRUE(evaluated && evaluated->code == 0) << log_of("stoker-eval");
  const auto metrics = newest_result(run_dir()).metrics;
  EXPECT_LT((std::map<std::string, double>(metrics.begin(), metrics.end()).at("loss")), 0.5);
  EXPECT_THAT(text_of(run_dir() + "/eval/artifacts/step-000000120.val.generated.txt"),
              StartsWith(GetParam().generated));
  const auto generated =
      evaluator(run_dir(), {"--generate", "20", "--prompt", "to", "--temperature", "0"}).wait(120s);
  ASSERT_TRUE(generated && generated->code == 0) << log_of("stoker-eval");
  EXPECT_THAT(log_of("stoker-eval"), HasSubstr("\nto be or not to be\n"));
}

// A run that tokenizes in its own process and is killed, and one that does neither.
TEST_P(TokenizerKindTest, TrainsSameBytesInAnyProcessAndAfterKill) {
  const std::string config = this->config();
  const auto settings = [](uint64_t max_steps, const std::string& num_processes) {
    return std::vector<std::string>{"--set", "scheduler.name=constant",
                                    "--set", "log.level=debug",
                                    "--set", "feed.num_processes=" + num_processes,
                                    "--set", "train.max_steps=" + std::to_string(max_steps)};
  };
  const std::string tokenizing = "worker process started dataset=train";
  const Progress before = progress_of(run_dir());
  Process killed = trainer(config, run_dir(), settings(100000000, "0"));
  ASSERT_FALSE(wait_for(KillPoint::kCheckpointSaved, killed, run_dir(), before));
  ASSERT_TRUE(killed.kill());
  EXPECT_THAT(log_of("stokerd"), AllOf(HasSubstr("text tokenized"), Not(HasSubstr(tokenizing))));
  const uint64_t last = newest_step(run_dir()) + 10;
  ASSERT_EQ(train(config, run_dir(), settings(last, "1")).code, 0) << log_of("stokerd");
  const Progress alone = progress_of(run_dir("alone"));
  ASSERT_EQ(train(config, run_dir("alone"), settings(last, "1")).code, 0) << log_of("stokerd");
  EXPECT_THAT(log_since(alone), AllOf(HasSubstr("text tokenized"), HasSubstr(tokenizing)));
  EXPECT_EQ(model_sha256(run_dir(), last), model_sha256(run_dir("alone"), last));
  EXPECT_EQ(deterministic_records(run_dir()), deterministic_records(run_dir("alone")));
}

TEST_P(TokenizerKindTest, RejectsSmallerVocabularyOfModel) {
  const std::string size = std::to_string(GetParam().vocab_size);
  const std::string smaller = std::to_string(GetParam().vocab_size - 1);
  EXPECT_EQ(train(config(", vocab_size: " + smaller), run_dir()).code, 78) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), HasSubstr("model.vocab_size is " + smaller +
                                           ", but the data has " + size + " different tokens"));
  EXPECT_THAT(log_of("stokerd"), Not(HasSubstr("training started")));
}

// SentencePiece adds a space to a prompt, which makes "to" the second one of a line.
INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerKindTest,
                         ::testing::Values(TokenizerKind{"Json", small_json, 261, 12,
                                                         "<|endoftext|>", "to be or not to be\n"},
                                           TokenizerKind{"Tiktoken", small_tiktoken, 50257, 12,
                                                         "<|endoftext|>", "to be or not to be\n"},
                                           TokenizerKind{"SentencePiece", small_sentence_piece, 9,
                                                         7, "1", "to be\nto be or not to be\n"}),
                         [](const auto& kind) { return std::string(kind.param.name); });

// ---- tokenizer.json

// An export next to training and evaluation changes neither.
TEST_F(TokenizerRunTest, IsExportedWhileItTrainsAndIsEvaluated) {
  const std::string gpt2 = config();
  const auto settings = [](uint64_t max_steps) {
    return std::vector<std::string>{"--set", "model.name=gpt2",
                                    "--set", "scheduler.name=constant",
                                    "--set", "checkpoint.save_every_steps=100",
                                    "--set", "train.max_steps=" + std::to_string(max_steps)};
  };
  const Progress before = progress_of(run_dir());
  Process trainer = this->trainer(gpt2, run_dir(), settings(100000000));
  ASSERT_FALSE(wait_for(KillPoint::kCheckpointSaved, trainer, run_dir(), before));
  Process evaluator = this->evaluator(run_dir(), {"--follow"});
  // A signal before its start would kill it.
  ASSERT_TRUE(wait_until(kPatience, [&] {
    return text_if_exists(path("stoker-eval.out")).find("evaluator started") != std::string::npos;
  }));
  // One: the second run has as many steps as this one has until its end.
  const auto exported =
      ctl(run_dir(), {"export", "latest", "--format", "huggingface", "--output", path("export")},
          "ctl")
          .wait(60s);
  ASSERT_TRUE(exported && exported->code == 0) << log_of("ctl");
  EXPECT_TRUE(std::filesystem::exists(path("export") + "/tokenizer.json"));
  trainer.signal(SIGTERM);
  EXPECT_EQ(code_of(trainer), 0) << log_of("stokerd");
  evaluator.signal(SIGTERM);
  EXPECT_EQ(code_of(evaluator), 0) << log_of("stoker-eval");
  const uint64_t last = newest_step(run_dir());
  ASSERT_EQ(train(gpt2, run_dir("alone"), settings(last)).code, 0) << log_of("stokerd");
  EXPECT_EQ(model_sha256(run_dir(), last), model_sha256(run_dir("alone"), last));
  for (const std::string& run : {run_dir(), run_dir("alone")}) {
    const auto evaluated = this->evaluator(run, {"--once"}).wait(120s);
    ASSERT_TRUE(evaluated && evaluated->code == 0) << log_of("stoker-eval");
  }
  EXPECT_EQ(newest_result(run_dir()).metrics, newest_result(run_dir("alone")).metrics);
}

TEST_F(TokenizerRunTest, RejectsAnotherTokenizerOnResumeAndEvaluation) {
  ASSERT_EQ(train(config(), run_dir()).code, 0) << log_of("stokerd");
  write("t.json", to_json(small_tokenizer()) + "\n");
  EXPECT_NE(train(config(), run_dir(), {"--set", "train.max_steps=30"}).code, 0);
  EXPECT_THAT(log_of("stokerd"), AllOf(HasSubstr("data.train.tokenizer: sum of the file"),
                                       HasSubstr("--allow-model-change")));
  // Further attempts would wait.
  const auto ended = evaluator(run_dir(), {"--once", "--set", "eval.max_attempts=1"}).wait(120s);
  ASSERT_TRUE(ended && ended->code == 78);
  EXPECT_THAT(log_of("stoker-eval"),
              HasSubstr("was trained with another data.train.tokenizer.path, SHA-256"));
}

TEST_F(TokenizerRunTest, ReportsInvalidTokenizerBeforeTraining) {
  write("t.json", to_json(small_tokenizer()).substr(0, 1000));
  EXPECT_NE(train(config(), run_dir()).code, 0);
  EXPECT_THAT(log_of("stokerd"),
              HasSubstr("data.train.tokenizer.path: " + path("t.json") + ": is not JSON"));
}

}  // namespace
}  // namespace stoker::test
