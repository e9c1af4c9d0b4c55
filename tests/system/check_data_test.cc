// What stokerd finds in datasets before it trains: at a start, and with --check-data.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/run/run_layout.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckDataTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    fs::create_directory(path("tmp"));
    ::setenv("TMPDIR", path("tmp").c_str(), 1);
    write("train.csv", "x,kind\n1,cat\n2,dog\n3,cat\n4,dog\n");
    write("val.csv", "x,kind\n5,dog\n6,cat\n");
    config_ = write_config(config("val"));
  }
  void TearDown() override {
    ::unsetenv("TMPDIR");
    RunTest::TearDown();
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
  }
  std::string config(const std::string& val, const std::string& more = "") const {
    const auto dataset = [&](const std::string& name, const std::string& file) {
      return "  " + name + ": {format: csv, path: " + path(file + ".csv") +
             ", fields: {label: kind}}\n";
    };
    return "data:\n" + dataset("train", "train") + dataset("val", val) + more +
           "model: {name: mlp, hidden_sizes: [2]}\ntask: {name: classification}\n"
           "train: {max_steps: 3, micro_batch_size: 2, device: cpu, num_threads: 1}\n";
  }
  int start(const std::vector<std::string>& more = {}) const {
    fs::remove(path("stokerd.out"));
    return train(config_, run_dir(), more).code;
  }
  int check(const std::vector<std::string>& more = {}) const {
    const int code = start(joined({"--check-data"}, more));
    EXPECT_TRUE(fs::is_empty(path("tmp"))) << "temporary files were left";
    return code;
  }
  // A file that replaces another one can have its inode.
  static std::string identity_of(const std::string& file) {
    struct stat info {};
    EXPECT_EQ(::stat(file.c_str(), &info), 0) << file;
    return std::to_string(info.st_ino) + " " + std::to_string(info.st_size) + " " +
           std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec);
  }
  size_t lines_with(const std::string& text) const { return count_of(log_of("stokerd"), text); }

  std::string config_;
};

TEST_F(CheckDataTest, StartIsRefusedForMissingEvaluatedData) {
  fs::remove(path("val.csv"));
  EXPECT_EQ(start(), 78);
  EXPECT_THAT(log_of("stokerd"), AllOf(HasSubstr("data.val"), HasSubstr(path("val.csv"))));
  EXPECT_FALSE(fs::exists(run_dir() + "/metrics/train.jsonl"));
  EXPECT_TRUE(checkpoints(run_dir()).empty());
}

// A mount that is missing after a reboot delays the evaluation only.
TEST_F(CheckDataTest, ResumesWithoutEvaluatedData) {
  ASSERT_EQ(start(), 0) << log_of("stokerd");
  fs::remove(path("val.csv"));
  EXPECT_EQ(start({"--set", "train.max_steps=6"}), 0) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"),
              AllOf(HasSubstr("evaluation postponed step=3"), HasSubstr(path("val.csv"))));
  EXPECT_EQ(newest_step(run_dir()), 6u);
  write("val.csv", "x,kind\n5,cow\n");
  EXPECT_EQ(start({"--set", "train.max_steps=9"}), 78);
}

TEST_F(CheckDataTest, StartIsRefusedForClassWithoutOutput) {
  write("val.csv", "x,kind\n5,cow\n");
  EXPECT_EQ(start(), 78);
  EXPECT_THAT(log_of("stokerd"), AllOf(HasSubstr("data.val"), HasSubstr("'cow'")));
  EXPECT_TRUE(checkpoints(run_dir()).empty());
}

TEST_F(CheckDataTest, EvaluatorReadsIndexOfStart) {
  ASSERT_EQ(start(), 0) << log_of("stokerd");
  const std::string index = run::RunLayout(run_dir()).eval_index_dir() + "/val.index";
  const std::string before = identity_of(index);
  Process evaluator = this->evaluator(run_dir(), {"--once"});
  EXPECT_EQ(code_of(evaluator), 0) << log_of("stoker-eval");
  EXPECT_EQ(identity_of(index), before) << "it was built again";
  EXPECT_THAT(log_of("stoker-eval"), Not(HasSubstr("dataset index rebuilt")));
}

TEST_F(CheckDataTest, PrintsWhatDatasetsContain) {
  EXPECT_EQ(check(), 0) << log_of("stokerd");
  EXPECT_EQ(log_of("stokerd"),
            "data.train: 4 samples of input F32 [1], label I64 []; 2 classes: cat, dog; input "
            "columns x\n"
            "data.val: 2 samples of input F32 [1], label I64 []; 2 classes: cat, dog; input "
            "columns x\n");
  EXPECT_FALSE(fs::exists(run_dir())) << "a new run was written";
}

TEST_F(CheckDataTest, ReportsAllErrorsWithCodeOfFirst) {
  write("other.csv", "x,kind\n\"\n");
  config_ = write_config(config(
      "gone", "  other: {format: csv, path: " + path("other.csv") + ", fields: {label: kind}}\n"));
  EXPECT_EQ(check(), 78);
  EXPECT_EQ(lines_with("stokerd: "), 2u) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"),
              AllOf(HasSubstr("data.train: 4 samples"), HasSubstr(path("gone.csv")),
                    HasSubstr("data.other"), HasSubstr(path("other.csv"))));
  EXPECT_EQ(check({"--set", "data.val.path=" + path("val.csv")}), 65) << log_of("stokerd");
}

TEST_F(CheckDataTest, ReportsMissingTrainingDataAlone) {
  fs::remove(path("train.csv"));
  EXPECT_EQ(check(), 78);
  EXPECT_EQ(lines_with("stokerd: "), 1u) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), AllOf(HasSubstr("stokerd: data.train.path: " + path("train.csv")),
                                       HasSubstr("data.val: 2 samples")));
}

TEST_F(CheckDataTest, PrintsConfigurationBesideResults) {
  EXPECT_EQ(check({"--check-config"}), 0) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"),
              AllOf(HasSubstr("max_steps: 3"), HasSubstr("data.val: 2 samples")));
  EXPECT_EQ(check({"--check-config", "--set", "train.max_steps=none"}), 78);
  EXPECT_EQ(lines_with("samples"), 0u) << log_of("stokerd");
}

TEST_F(CheckDataTest, UsesIndexesOfRun) {
  ASSERT_EQ(start(), 0) << log_of("stokerd");
  const run::RunLayout layout(run_dir());
  const std::string train = layout.index_dir() + "/train.index";
  const std::string before = identity_of(train);
  EXPECT_EQ(check(), 0) << log_of("stokerd");
  EXPECT_EQ(identity_of(train), before);
  write("train.csv", "x,kind\n1,cat\n2,dog\n3,cat\n4,dog\n6,dog\n");
  EXPECT_EQ(check(), 0) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), HasSubstr("data.train: 5 samples"));
  const std::string rebuilt = identity_of(train);
  EXPECT_NE(rebuilt, before);

  // A run in progress is left alone.
  const auto lock = lock_file(layout.lock_file(), "{\"pid\":1}\n");
  ASSERT_TRUE(lock.ok()) << lock.status().to_string();
  write("train.csv", "x,kind\n1,cat\n2,dog\n");
  EXPECT_EQ(check(), 0) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"),
              AllOf(HasSubstr("data.train: 2 samples"), HasSubstr("temporary indexes")));
  EXPECT_EQ(identity_of(train), rebuilt);
}

TEST_F(CheckDataTest, DoesNotOpenStreams) {
  const std::string fifo = path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  config_ = write_config(
      "data:\n  train: {format: jsonl, fields: {input: x, label: y}, num_classes: 4, "
      "stream: {source: " +
      fifo +
      "}}\n"
      "model: {name: mlp, hidden_sizes: [2]}\ntask: {name: classification}\n"
      "train: {max_steps: 3, micro_batch_size: 2, device: cpu, num_threads: 1}\n");
  EXPECT_EQ(check(), 0) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"),
              HasSubstr("data.train: not opened, because a stream can be read only once: " + fifo));
}

}  // namespace
}  // namespace stoker::test
