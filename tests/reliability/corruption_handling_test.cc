// Corrupt checkpoints with the real programs: stokerctl verify reports the file, stoker-eval and
// stokerd reject the checkpoint. With STOKER_FAULT_TESTS=full, stokerctl verify reads the small
// files with a bit flipped in every byte, and truncated at every byte; otherwise, and for the large
// files, at bytes spread over the file. (tests/shared/checkpoint/verify_test.cc flips a bit in every
// byte of every file within one process.)
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <vector>

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

  // Runs stokerctl verify; returns its exit code and stores its output in `output`.
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

  // At most `count` positions spread over a file, from its first byte to its last.
  static std::vector<size_t> positions(size_t bytes, size_t count) {
    std::vector<size_t> spread;
    for (size_t i = 0; i < std::min(bytes, count); ++i)
      spread.push_back(bytes <= count ? i : i * (bytes - 1) / (count - 1));
    return spread;
  }
  // All positions of a small file in a full test.
  static std::vector<size_t> positions_to_verify(size_t bytes) {
    constexpr size_t kSmall = 4096;
    return positions(bytes, is_full_test() ? (bytes <= kSmall ? bytes : 500) : 12);
  }
  static std::string with_flipped_bit(std::string bytes, size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    return bytes;
  }
  static void print_count(size_t flips, size_t truncations) {
    if (HasFailure()) return;
    std::cout << "enumerated: " << flips << " flipped bits, " << truncations
              << " truncations, 0 accepted\n";
  }

  std::string config_;
  std::string checkpoint_;
};

TEST_F(CorruptCheckpointTest, VerifyReportsFileWithAnyFlippedBit) {
  std::string output;
  ASSERT_EQ(verify(output), 0) << output;
  size_t flips = 0;
  for (const char* const file : kFiles) {
    const std::string file_path = checkpoint_ + "/" + file;
    const std::string original = text_of(file_path);
    for (const size_t at : positions_to_verify(original.size())) {
      write_whole(file_path, with_flipped_bit(original, at));
      ASSERT_EQ(verify(output), 65) << file << " at byte " << at << ": " << output;
      ASSERT_NE(output.find(file), std::string::npos)
          << file << " at byte " << at << ": " << output;
      ++flips;
    }
    write_whole(file_path, original);
  }
  EXPECT_EQ(verify(output), 0) << output;
  print_count(flips, 0);
}

TEST_F(CorruptCheckpointTest, VerifyReportsTruncatedOrMissingFile) {
  std::string output;
  size_t truncations = 0;
  for (const char* const file : kFiles) {
    const std::string file_path = checkpoint_ + "/" + file;
    const std::string original = text_of(file_path);
    const auto lengths =
        is_full_test() ? positions_to_verify(original.size()) : positions(original.size(), 3);
    for (const size_t bytes : lengths) {
      write_whole(file_path, original.substr(0, bytes));
      ASSERT_EQ(verify(output), 65) << file << " with " << bytes << " bytes";
      ASSERT_NE(output.find(file), std::string::npos)
          << file << " with " << bytes << " bytes: " << output;
      ++truncations;
    }
    fs::remove(file_path);
    EXPECT_EQ(verify(output), 65) << file;
    EXPECT_NE(output.find(file), std::string::npos) << output;
    write_whole(file_path, original);
  }
  print_count(0, truncations);
}

// Flips tensor bytes, which only the checksums protect; a plain loader would accept them.
TEST_F(CorruptCheckpointTest, EvaluatorRejectsCorruptCheckpointWithFile) {
  ASSERT_EQ(evaluate(), 0) << log_of("stoker-eval");
  const auto expect_rejected = [this](const std::string& file, const std::string& content,
                                      const std::string& description) {
    write_whole(checkpoint_ + "/" + file, content);
    fs::remove(path("stoker-eval.out"));
    ASSERT_EQ(evaluate(), 65) << file << " " << description << ": " << log_of("stoker-eval");
    ASSERT_NE(log_of("stoker-eval").find(file), std::string::npos)
        << description << ": " << log_of("stoker-eval");
  };
  size_t flips = 0;
  size_t truncations = 0;
  for (const char* const file : kFiles) {
    const std::string original = text_of(checkpoint_ + "/" + file);
    const size_t bytes = original.size();
    const bool is_full = is_full_test();
    for (const size_t at : is_full ? positions(bytes, 12) : std::vector{bytes - 2}) {
      expect_rejected(file, with_flipped_bit(original, at), "flipped at " + std::to_string(at));
      if (HasFatalFailure()) return;
      ++flips;
    }
    for (const size_t at : is_full ? positions(bytes, 12) : std::vector{bytes / 2}) {
      expect_rejected(file, original.substr(0, at), "truncated at " + std::to_string(at));
      if (HasFatalFailure()) return;
      ++truncations;
    }
    write_whole(checkpoint_ + "/" + file, original);
  }
  EXPECT_EQ(evaluate(), 0) << log_of("stoker-eval");
  print_count(flips, truncations);
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
