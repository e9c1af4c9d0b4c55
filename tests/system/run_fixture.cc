#include "tests/system/run_fixture.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/checkpoint/store.h"
#include "tests/support/logged_text.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

}  // namespace

std::string program(const std::string& name) { return std::string(STOKER_BIN_DIR) + "/" + name; }

std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

void RunTest::SetUp() {
  std::string pattern = ::testing::TempDir() + "stoker-system-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
}

void RunTest::TearDown() {
  if (HasFailure()) {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".out")
        std::cerr << "---- " << entry.path() << "\n" << text_if_exists(entry.path()) << "\n";
    }
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string RunTest::small_config(const std::string& more) const {
  return R"(data:
  train: {format: synthetic, num_samples: 5000, input_shape: [32], num_classes: 4, noise_std: 0.5}
  val: {format: synthetic, num_samples: 256, input_shape: [32], num_classes: 4, noise_std: 0.5}
feed: {num_workers: 2, prefetch_batches: 4}
model: {name: mlp, hidden_sizes: [32], dropout: 0.1}
task: {name: classification}
optimizer: {name: adamw, lr: 0.003}
scheduler: {name: cosine, warmup_steps: 10, min_lr: 0.0001}
train: {max_steps: 400, micro_batch_size: 16, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 40, keep_last: 3}
metrics: {log_every_steps: 7}
)" + more;
}

std::string RunTest::text_config(const std::string& more) const {
  std::ofstream corpus(path("corpus.txt"));
  for (int i = 0; i < 4000; ++i)
    corpus << "line " << i << " of a text that repeats itself, as texts do\n";
  return "data:\n  train: {format: text, path: " + path("corpus.txt") +
         ", split: [0.0, 0.9]}\n  val: {format: text, path: " + path("corpus.txt") +
         R"(, split: [0.9, 1.0]}
model: {name: gpt, num_layers: 2, embed_dim: 32, num_heads: 2, context_length: 32}
task: {name: language_modeling}
optimizer: {name: adamw, lr: 0.002}
scheduler: {name: constant, warmup_steps: 10}
train: {max_steps: 60, micro_batch_size: 8, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 20, keep_last: 3}
metrics: {log_every_steps: 5}
)" + more;
}

std::string RunTest::write_config(const std::string& yaml, const std::string& name) const {
  std::ofstream(path(name)) << yaml;
  return path(name);
}

Process RunTest::trainer(const std::string& config, const std::string& run,
                         const std::vector<std::string>& more) const {
  return Process(joined({program("stokerd"), "--config", config, "--run-dir", run}, more),
                 path("stokerd.out"));
}

Process RunTest::evaluator(const std::string& run, const std::vector<std::string>& more) const {
  return Process(joined({program("stoker-eval"), "--run-dir", run}, more), path("stoker-eval.out"));
}

Process RunTest::ctl(const std::string& run, const std::vector<std::string>& more,
                     const std::string& log) const {
  return Process(joined({program("stokerctl"), "--run-dir", run}, more), path(log + ".out"));
}

Exit RunTest::train(const std::string& config, const std::string& run,
                    const std::vector<std::string>& more) const {
  Process process = trainer(config, run, more);
  const auto exit = process.wait(90s);
  if (!exit) {
    ADD_FAILURE() << "stokerd did not exit";
    return Exit{-1, 0};
  }
  return *exit;
}

std::string RunTest::text_of(const std::string& file) {
  EXPECT_TRUE(std::ifstream(file, std::ios::binary).is_open()) << file << " cannot be read";
  return text_if_exists(file);
}

void RunTest::expect_logged(const std::string& name, const std::string& text) const {
  EXPECT_TRUE(wait_until(kPatience, [&] { return log_of(name).find(text) != std::string::npos; }))
      << name << " has not logged '" << text << "':\n"
      << log_of(name);
}

size_t RunTest::count_of(const std::string& text, const std::string& part) {
  return test::count_of(text, part);
}

int RunTest::code_of(Process& process) {
  const auto exit = process.wait(kPatience);
  EXPECT_TRUE(exit) << process.log() << " is still running";
  return exit && exit->signal == 0 ? exit->code : -1;
}

std::string RunTest::newest_checkpoint(const std::string& run) {
  return run + "/checkpoints/" + checkpoint::CheckpointStore::checkpoint_name(newest_step(run));
}

void RunTest::expect_same_checkpoint(const std::string& run, const std::string& other,
                                     const std::vector<std::string>& files) {
  EXPECT_EQ(newest_step(run), newest_step(other));
  for (const std::string& file : files)
    EXPECT_TRUE(text_of(newest_checkpoint(run) + "/" + file) ==
                text_of(newest_checkpoint(other) + "/" + file))
        << run << ": " << file;
}

std::string RunTest::text_if_exists(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> RunTest::checkpoints(const std::string& run) {
  std::vector<std::string> names;
  const checkpoint::CheckpointStore store(run + "/checkpoints", default_file_system());
  const auto entries = store.list();
  if (entries.ok()) {
    for (const auto& entry : *entries) names.push_back(store.checkpoint_name(entry.step));
  }
  return names;
}

uint64_t RunTest::newest_step(const std::string& run) {
  const auto names = checkpoints(run);
  return names.empty() ? 0 : *checkpoint::CheckpointStore::parse_checkpoint_name(names.back());
}

run::DatasetResult RunTest::newest_result(const std::string& run) {
  const std::string path = run::eval_result_path(run + "/eval", newest_step(run));
  const auto result = run::parse_eval_result(text_of(path), path);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() && !result->datasets.empty() ? result->datasets.front() : run::DatasetResult{};
}

std::string RunTest::model_sha256(const std::string& run, uint64_t step) {
  return sha256_hex(text_of(run + "/checkpoints/" +
                            checkpoint::CheckpointStore::checkpoint_name(step) +
                            "/model.safetensors"));
}

std::vector<std::string> RunTest::deterministic_records(const std::string& run) {
  std::istringstream in(text_of(run + "/metrics/train.jsonl"));
  std::vector<std::string> rows;
  for (std::string line; std::getline(in, line);)
    rows.push_back(line.substr(0, line.find(",\"samples_per_second\"")));
  EXPECT_FALSE(rows.empty()) << run << " has no records";
  return rows;
}

size_t RunTest::num_records(const std::string& run) {
  const std::string text = text_if_exists(run + "/metrics/train.jsonl");
  return static_cast<size_t>(std::ranges::count(text, '\n'));
}

uint64_t RunTest::newest_record_step(const std::string& run) {
  constexpr std::string_view kStart = "{\"step\":";
  constexpr std::streamoff kLastRecords = 8192;  // bytes that hold at least one
  std::ifstream in(run + "/metrics/train.jsonl", std::ios::binary | std::ios::ate);
  const std::streamoff bytes = in.tellg();
  in.seekg(std::max<std::streamoff>(bytes - kLastRecords, 0));
  uint64_t step = 0;
  // A line that ends with the file can be incomplete.
  for (std::string line; std::getline(in, line) && !in.eof();)
    if (line.starts_with(kStart)) step = std::strtoull(line.c_str() + kStart.size(), nullptr, 10);
  return step;
}

RunTest::Progress RunTest::progress_of(const std::string& run) const {
  return {.log_bytes = text_if_exists(path("stokerd.out")).size(),
          .records = num_records(run),
          .checkpoint = newest_step(run)};
}

std::optional<Exit> RunTest::wait_for(KillPoint point, Process& trainer, const std::string& run,
                                      const Progress& before) const {
  // A separate thread writes the log, possibly after the first records.
  const auto is_training = [&] { return start_step_of(log_since(before)).has_value(); };
  const auto is_reached = [&] {
    const Progress now = progress_of(run);
    switch (point) {
      case KillPoint::kProcessStarted:
        return now.log_bytes > before.log_bytes;
      case KillPoint::kTrainingStarted:
        return is_training();
      case KillPoint::kRecordWritten:
        return now.records > before.records && is_training();
      case KillPoint::kCheckpointSaved:
        return now.checkpoint > before.checkpoint && is_training();
    }
    return false;
  };
  std::optional<Exit> exit;
  EXPECT_TRUE(wait_until(90s, [&] {
    exit = trainer.wait(0ms);
    return exit || is_reached();
  })) << "no progress";
  return exit;
}

KillReport RunTest::report_kill_of(const std::string& run, const Progress& before,
                                   uint64_t max_steps) const {
  return report_kill(log_since(before), std::max(newest_record_step(run), newest_step(run)),
                     max_steps);
}

std::string RunTest::log_since(const Progress& before) const {
  return log_of("stokerd").substr(before.log_bytes);
}

std::vector<pid_t> RunTest::children_of(pid_t parent, const std::string& name) {
  std::vector<pid_t> children;
  const std::string task = "/proc/" + std::to_string(parent) + "/task";
  std::error_code ignored;
  for (const auto& thread : fs::directory_iterator(task, ignored)) {
    std::istringstream pids(text_if_exists(thread.path() / "children"));
    for (pid_t pid = 0; pids >> pid;) {
      const std::string comm = text_if_exists("/proc/" + std::to_string(pid) + "/comm");
      if (comm == name + "\n") children.push_back(pid);
    }
  }
  return children;
}

}  // namespace stoker::test
