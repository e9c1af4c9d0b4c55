// A sandboxed stoker-feed reads every file format. Each batch is compared with the samples that the
// dataset returns in this process, without a sandbox.
#include <gtest/gtest.h>

#include "feeder/sandbox.h"
#include "tests/daemon/supervisor/feed_fixture.h"
#include "tests/shared/data/small_datasets.h"

namespace stoker::feeder {

using namespace supervisor;  // its fixture starts the workers
namespace {

using data::testing::SmallDataset;

class SandboxedFormatsTest : public FeedTest, public ::testing::WithParamInterface<SmallDataset> {
 protected:
  void SetUp() override {
    FeedTest::SetUp();
    options_.feed_program = FEED_PROGRAM;
  }
  void write_settings(const std::string& feed) const {
    const bool sequence = data_->spec().size() == 1;
    std::ofstream(options_.config_path)
        << "run: {seed: 9}\ndata:\n  train: " << GetParam().yaml_in(path("set")) << '\n'
        << (sequence ? "model: {name: gpt, vocab_size: 65536}\n"
                     : "model: {name: mlp, hidden_sizes: [8]}\ntask: {name: classification}\n")
        << "train: {micro_batch_size: " << kBatch << "}\nfeed: " << feed << '\n';
  }
  void expect_batches_as_without_sandbox(const std::string& feed) {
    open_data(GetParam().write(path("set")));
    write_settings(feed);
    open_ring({.slots = 4});
    ASSERT_TRUE(start().ok());
    for (uint64_t ticket = 0; ticket < 10; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
    const auto ids = supervisor_->process_ids();
    ASSERT_EQ(ids.size(), 1u);
    std::ifstream file("/proc/" + std::to_string(ids[0]) + "/status");
    const std::string status{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(status.find("NoNewPrivs:\t1"), std::string::npos);
    EXPECT_EQ(status.find("Seccomp:\t2") != std::string::npos, !kSanitized);
    supervisor_->stop();
    EXPECT_EQ(supervisor_->crashes(), 0u);
    EXPECT_EQ(supervisor_->sample_errors(), 0u);
  }
};

TEST_P(SandboxedFormatsTest, MatchesBatchesReadWithoutSandbox) {
  expect_batches_as_without_sandbox("{}");
}

TEST_P(SandboxedFormatsTest, MatchesBatchesReadWithoutSandboxWithReadAhead) {
  expect_batches_as_without_sandbox("{read_ahead: 8, read_ahead_mib: 1}");
}

INSTANTIATE_TEST_SUITE_P(Formats, SandboxedFormatsTest,
                         ::testing::ValuesIn(data::testing::small_datasets()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace stoker::feeder
