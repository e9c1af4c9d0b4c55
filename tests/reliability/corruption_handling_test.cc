// Corrupt checkpoints with the real programs: stokerctl verify reports the file, stoker-eval and
// stokerd reject the checkpoint. With STOKER_FAULT_TESTS=full, a bit is flipped in every byte of
// the small files; otherwise, and in the large files, in bytes spread over the file.
// (tests/shared/checkpoint/verify_test.cc flips a bit in every byte of every file within one
// process.)
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"model.safetensors", "optimizer.safetensors",
                                  "trainer_state.safetensors", "manifest.json", "SHA256SUMS"};

class CorruptCheckpointTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    config_ = write_config(small_config());
    ASSERT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=80"}).code, 0);
    checkpoint_ = run_dir() + "/checkpoints/step-000000080";
  }

  // Runs stokerctl verify; returns its exit code and stores its output in `said`.
  int verify(std::string& output) const {
    fs::remove(path("verify.out"));
    const auto exit = ctl(run_dir(), {"verify", "80"}, "verify").wait(30s);
    output = log_of("verify");
    return exit ? exit->code : -1;
  }
  int evaluate() const {
    const auto exit = evaluator(run_dir(), {"--checkpoint", checkpoint_}).wait(60s);
    return exit ? exit->code : -1;
  }

  static size_t stride_of(size_t bytes) {
    const char* const mode = std::getenv("STOKER_FAULT_TESTS");
    const bool is_full = mode != nullptr && std::string_view(mode) == "full";
    constexpr size_t kSmall = 4096;
    const size_t num_positions = is_full ? (bytes <= kSmall ? bytes : 500) : 12;
    return bytes / num_positions + (bytes % num_positions != 0);
  }

  std::string config_;
  std::string checkpoint_;
};

TEST_F(CorruptCheckpointTest, VerifyReportsFileWithAnyFlippedBit) {
  std::string output;
  ASSERT_EQ(verify(output), 0) << output;
  for (const char* const file : kFiles) {
    const std::string file_path = checkpoint_ + "/" + file;
    const std::string original = text_of(file_path);
    for (size_t at = 0; at < original.size(); at += stride_of(original.size())) {
      std::string flipped = original;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
      write_whole(file_path, flipped);
      ASSERT_EQ(verify(output), 65) << file << " at byte " << at << ": " << output;
      ASSERT_NE(output.find(file), std::string::npos)
          << file << " at byte " << at << ": " << output;
    }
    write_whole(file_path, original);
  }
  EXPECT_EQ(verify(output), 0) << output;
}

TEST_F(CorruptCheckpointTest, VerifyReportsTruncatedOrMissingFile) {
  std::string output;
  for (const char* const file : kFiles) {
    const std::string file_path = checkpoint_ + "/" + file;
    const std::string original = text_of(file_path);
    for (const size_t bytes : {size_t{0}, original.size() / 2, original.size() - 1}) {
      write_whole(file_path, original.substr(0, bytes));
      EXPECT_EQ(verify(output), 65) << file;
      EXPECT_NE(output.find(file), std::string::npos) << output;
    }
    fs::remove(file_path);
    EXPECT_EQ(verify(output), 65) << file;
    EXPECT_NE(output.find(file), std::string::npos) << output;
    write_whole(file_path, original);
  }
}

// Flips tensor bytes, which only the checksums protect; a plain loader would accept them.
TEST_F(CorruptCheckpointTest, EvaluatorRejectsCorruptCheckpointWithFile) {
  ASSERT_EQ(evaluate(), 0) << log_of("stoker-eval");
  for (const char* const file : kFiles) {
    const std::string file_path = checkpoint_ + "/" + file;
    const std::string original = text_of(file_path);
    std::string flipped = original;
    flipped[original.size() - 2] = static_cast<char>(flipped[original.size() - 2] ^ 1);
    for (const std::string& corrupt : {flipped, original.substr(0, original.size() / 2)}) {
      write_whole(file_path, corrupt);
      fs::remove(path("stoker-eval.out"));
      EXPECT_EQ(evaluate(), 65) << file << ": " << log_of("stoker-eval");
      EXPECT_NE(log_of("stoker-eval").find(file), std::string::npos) << log_of("stoker-eval");
    }
    write_whole(file_path, original);
  }
}

TEST_F(CorruptCheckpointTest, DaemonFallsBackOnTruncatedFileAndArchivesCheckpoint) {
  const std::string model = checkpoint_ + "/model.safetensors";
  const auto bytes = fs::file_size(model);
  fs::resize_file(model, bytes / 2);
  ASSERT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=90"}).code, 0);
  const std::string output = log_of("stokerd");
  EXPECT_NE(output.find("checkpoint rejected step=80"), std::string::npos) << output;
  EXPECT_NE(output.find(std::to_string(bytes)), std::string::npos)
      << "the expected size is missing";
  EXPECT_NE(output.find(std::to_string(bytes / 2)), std::string::npos)
      << "the actual size is missing";
  EXPECT_EQ(fs::file_size(run_dir() + "/checkpoints/archived.1.step-000000080/model.safetensors"),
            bytes / 2);
}

// A directory without checksums can belong to another program or be an incomplete copy. It is
// neither loaded nor deleted.
TEST_F(CorruptCheckpointTest, DaemonArchivesDirectoryWithoutChecksums) {
  fs::remove(checkpoint_ + "/SHA256SUMS");
  ASSERT_EQ(train(config_, run_dir(), {"--set", "train.max_steps=90"}).code, 0);
  EXPECT_NE(log_of("stokerd").find("checkpoint rejected step=80"), std::string::npos);
  EXPECT_TRUE(fs::exists(run_dir() + "/checkpoints/archived.1.step-000000080/model.safetensors"));
}

}  // namespace
}  // namespace stoker::test
