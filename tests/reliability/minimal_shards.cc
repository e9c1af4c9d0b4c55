// minimal-shards RUN_DIR MESSAGES RANK [stay]: one of two ranks that save the state of minimal-run at steps 5 and
// 10, each one half of the optimizer state, with the code of stokerd's ranks. What they tell each other is in
// files of the folder MESSAGES. Rank 0 prints "saved STEP" when a checkpoint is acknowledged. With "stay" the
// process does not exit.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "daemon/train/sharded_commit.h"
#include "shared/base/deadline.h"
#include "shared/run/run_layout.h"
#include "tests/reliability/minimal_state.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using checkpoint::CheckpointContent;
using checkpoint::CheckpointStore;

constexpr int kRanks = 2;
constexpr uint64_t kSteps = 10;
constexpr uint64_t kSaveEvery = 5;
constexpr auto kPatience = 60s;  // with the other rank

// Has no collectives.
class FileGroup final : public group::ProcessGroup {
 public:
  FileGroup(std::string folder, int rank) : folder_(std::move(folder)), rank_(rank) {}

  int rank() const override { return rank_; }
  int world_size() const override { return kRanks; }
  Status send_text(const std::string& name, const std::string& text) override {
    return write_file_atomically(default_file_system(), file(name, rank_), text);
  }
  Result<std::string> receive_text(const std::string& name, int of_rank) override {
    std::ifstream in(file(name, of_rank), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  Status check_rank(int) override { return {}; }
  Status check_newest() override { return {}; }
  std::string name_of(int rank) override { return "rank " + std::to_string(rank); }
  void report_failure(const Status&) override {}

  Status broadcast(const at::Tensor&, int, const std::stop_token&) override { return none(); }
  Status all_reduce_ordered(const std::vector<at::Tensor>&, const std::stop_token&) override {
    return none();
  }
  Status all_gather(const at::Tensor&, const std::vector<int64_t>&,
                    const std::stop_token&) override {
    return none();
  }
  Status start_all_reduce(const at::Tensor&) override { return none(); }
  Status start_reduce_scatter(const at::Tensor&, const std::vector<int64_t>&) override {
    return none();
  }
  Status finish_sums(const std::stop_token&) override { return none(); }
  Status check_same(const group::SharedSettings&, const std::stop_token&) override {
    return none();
  }
  Result<std::string> text_of_chief(const std::string&, const std::stop_token&) override {
    return none();
  }
  Result<std::vector<std::string>> gather(const std::string&, const std::stop_token&) override {
    return none();
  }

 private:
  static Status none() { return Status(StatusCode::kInternal, "there are no collectives"); }
  std::string file(const std::string& name, int rank) const {
    return folder_ + "/" + name + "-" + std::to_string(rank);
  }

  const std::string folder_;
  const int rank_;
};

class MinimalShards {
 public:
  MinimalShards(const std::string& run_dir, const std::string& messages, int rank)
      : store_(run::RunLayout(run_dir).checkpoints_dir(), default_file_system()),
        group_(messages, rank),
        commit_(group_, store_, default_file_system(),
                {.timeout = kPatience, .poll_interval = 1ms}) {}

  Status run() {
    STOKER_RETURN_IF_ERROR(resume());
    while (state_.step < kSteps) {
      state_.advance();
      if (state_.step % kSaveEvery != 0) continue;
      const auto saved = commit_.commit(content(), {});
      // A single unbuffered write, so that a kill cannot separate the acknowledgement from its output.
      const std::string line = "saved " + std::to_string(state_.step) + "\n";
      if (saved.ok() && group_.is_chief() &&
          ::write(STDOUT_FILENO, line.c_str(), line.size()) != static_cast<ssize_t>(line.size()))
        return Status(StatusCode::kIoError, "standard output");
      commit_.announce(saved, {});
      STOKER_RETURN_IF_ERROR(saved.status());
    }
    return {};
  }

 private:
  // All ranks from the checkpoint that the chief finds.
  Status resume() {
    if (group_.is_chief()) STOKER_RETURN_IF_ERROR(store_.clean_up());
    if (!group_.is_chief()) STOKER_RETURN_IF_ERROR(wait_until_begun(0));
    const auto newest = store_.open_newest({});
    if (newest.ok()) {
      STOKER_ASSIGN_OR_RETURN(state_, MinimalState::read_from(*newest));
    } else if (newest.status().code() != StatusCode::kNotFound) {
      return newest.status();
    }
    STOKER_RETURN_IF_ERROR(group_.send_text("begun", "yes"));
    return group_.is_chief() ? wait_until_begun(1) : Status();  // the other one has read it, too
  }
  Status wait_until_begun(int rank) {
    const Deadline deadline = std::chrono::steady_clock::now() + kPatience;
    while (true) {
      STOKER_ASSIGN_OR_RETURN(const std::string begun, group_.receive_text("begun", rank));
      if (!begun.empty()) return {};
      if (std::chrono::steady_clock::now() > deadline)
        return Status(StatusCode::kTimedOut, group_.name_of(rank) + " has not begun");
      ::usleep(1000);
    }
  }

  CheckpointContent content() {
    constexpr size_t kHalf = std::tuple_size_v<decltype(MinimalState::momentum)> / kRanks;
    const auto begin = kHalf * static_cast<size_t>(group_.rank());
    step_ = {static_cast<int64_t>(state_.step)};
    CheckpointContent content;
    content.manifest.step = state_.step;
    content.manifest.live_settings = "{}";
    content.num_shards = kRanks;
    content.optim_bytes = sizeof state_.momentum;
    content.ranges = {{"momentum", {{2 * kHalf}, begin}}};
    content.model = {{{"weights", DType::kI64, {2 * kHalf}}, bytes_of(state_.weights)}};
    content.optim = {{{"momentum", DType::kI64, {kHalf}},
                      std::as_bytes(std::span(state_.momentum).subspan(begin, kHalf))}};
    content.state = {{{"step", DType::kI64, {1}}, bytes_of(step_)}};
    return content;
  }
  template <typename Numbers>
  static std::span<const std::byte> bytes_of(const Numbers& numbers) {
    return std::as_bytes(std::span(numbers));
  }

  CheckpointStore store_;
  FileGroup group_;
  train::ShardedCommit commit_;
  MinimalState state_;
  std::array<int64_t, 1> step_{};
};

}  // namespace
}  // namespace stoker::test

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the test is killed
  const stoker::Status status =
      stoker::test::MinimalShards(argv[1], argv[2], std::stoi(argv[3])).run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  while (argc > 4) ::pause();
  return status.ok() ? 0 : 1;
}
