#include "tests/reliability/minimal_run_check.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ranges>
#include <sstream>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/checkpoint/store.h"
#include "shared/run/last_checkpoint.h"
#include "shared/run/run_state.h"
#include "tests/reliability/minimal_state.h"
#include "tests/support/temporary_directory.h"

namespace stoker::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointStore;
using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

std::vector<std::string> minimal_run_command(const std::string& run_dir) {
  return {STOKER_MINIMAL_RUN, run_dir, std::to_string(kMinimalRunSteps),
          std::to_string(kMinimalRunSaveEvery)};
}

std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << file << " cannot be read";
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<checkpoint::CheckpointEntry> list_checkpoints(const std::string& run_dir) {
  const auto entries = CheckpointStore(run_dir + "/checkpoints", default_file_system()).list();
  return entries.ok() ? *entries : std::vector<checkpoint::CheckpointEntry>{};
}

// The results of a run that do not depend on time: checksums of the newest two checkpoints, the
// deterministic part of each record, and the end state. A third checkpoint can remain if the run
// crashed between its last save and retention.
std::string deterministic_results(const std::string& run_dir) {
  std::string results;
  const auto entries = list_checkpoints(run_dir);
  for (const auto& entry : entries | std::views::drop(std::max<size_t>(entries.size(), 2) - 2))
    for (const char* const file : {"model", "optimizer", "trainer_state"}) {
      const std::string bytes = text_of(entry.path + "/" + file + ".safetensors");
      EXPECT_FALSE(bytes.empty()) << entry.path << " has no " << file;
      results += std::to_string(entry.step) + " " + file + " " + sha256_hex(bytes) + "\n";
    }
  std::istringstream rows(text_of(run_dir + "/metrics/train.jsonl"));
  for (std::string row; std::getline(rows, row);)
    results += row.substr(0, row.find(",\"samples_per_second\"")) + "\n";
  const auto state = run::read_run_state(run::RunLayout(run_dir));
  return results + std::string(state.end ? run::to_string(state.end->outcome) : "no exit status") +
         "\n";
}

const std::string& uninterrupted_results() {
  static const std::string results = [] {
    TemporaryDirectory folder;
    const auto end = run_to_exit(minimal_run_command(folder / "run"), folder / "output");
    EXPECT_EQ(end.code, 0) << text_of(folder / "output");
    return deterministic_results(folder / "run");
  }();
  return results;
}

}  // namespace

TraceEnd run_minimal_run(const std::string& run_dir, const std::string& output,
                         const std::function<Verdict(const FileCall&)>& check) {
  return trace(minimal_run_command(run_dir), output, run_dir, check);
}

uint64_t newest_saved(const std::string& output) {
  std::istringstream lines(text_of(output));
  uint64_t newest = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("saved "))
      newest = std::max<uint64_t>(newest, std::stoull(line.substr(6)));
  return newest;
}

bool said(const std::string& output, const std::string& words) {
  return text_of(output).find(words) != std::string::npos;
}

uint64_t newest_visible(const std::string& run_dir) {
  const auto entries = list_checkpoints(run_dir);
  return entries.empty() ? 0 : entries.back().step;
}

std::string find_leftovers(const std::string& run_dir) {
  std::string found;
  for (const auto& entry : fs::recursive_directory_iterator(run_dir)) {
    const std::string name = entry.path().filename();
    if (name.starts_with('.')) found += " " + entry.path().string();
  }
  return found;
}

AssertionResult all_checkpoints_valid(const std::string& run_dir, uint64_t acknowledged) {
  for (const auto& entry : list_checkpoints(run_dir)) {
    const auto opened = CheckpointStore::open_verified(entry.path);
    if (!opened.ok()) return AssertionFailure() << "invalid: " << opened.status().to_string();
    const auto state = MinimalState::read_from(*opened);
    if (!state.ok() || *state != MinimalState::at(entry.step))
      return AssertionFailure() << entry.path << ": not the state of its step";
  }
  const auto last = run::read_last_checkpoint(run::RunLayout(run_dir).last_checkpoint_file());
  if (!last.ok()) return AssertionFailure() << last.status().to_string();
  if (*last && (*last)->step > newest_visible(run_dir))
    return AssertionFailure() << "recorded: checkpoint " << (*last)->step << ", which is not there";
  if (newest_visible(run_dir) < acknowledged)
    return AssertionFailure() << "lost: checkpoint " << acknowledged << " was acknowledged, "
                              << newest_visible(run_dir) << " is the newest";
  return AssertionSuccess();
}

AssertionResult resumes_to_same_result(const std::string& run_dir, const std::string& output) {
  const auto end = run_to_exit(minimal_run_command(run_dir), output);
  if (end.code != 0 || end.signal != 0)
    return AssertionFailure() << "the next start failed: " << text_of(output);
  if (said(output, "last checkpoint "))
    return AssertionFailure() << "warned without reason: " << text_of(output);
  if (const std::string left = find_leftovers(run_dir); !left.empty())
    return AssertionFailure() << "leftover files:" << left;
  const std::string found = deterministic_results(run_dir);
  if (found != uninterrupted_results())
    return AssertionFailure() << "different results:\n"
                              << found << "expected\n"
                              << uninterrupted_results();
  return AssertionSuccess();
}

void make_run_with_leftovers(const std::string& run_dir, const std::string& output) {
  const auto end = run_minimal_run(run_dir, output, [](const FileCall& call) {
    const bool is_first_of_trash =
        call.path.find("/.trash-") != std::string::npos && call.name.starts_with("unlink");
    return is_first_of_trash ? Verdict::kKill : Verdict::kContinue;
  });
  ASSERT_NE(end.signal, 0) << "no checkpoint was deleted";
  ASSERT_EQ(newest_visible(run_dir), 15u);
  const std::string checkpoints = run_dir + "/checkpoints/";
  ASSERT_TRUE(fs::exists(checkpoints + ".trash-step-000000005"));
  const std::string model = text_of(checkpoints + "step-000000015/model.safetensors");
  fs::create_directory(checkpoints + ".tmp-step-000000020");
  write_whole(checkpoints + ".tmp-step-000000020/model.safetensors", model.substr(0, 300));
  const std::string rows = run_dir + "/metrics/train.jsonl";
  write_whole(rows, text_of(rows) + R"({"step":16,"epo)");
  write_whole(run_dir + "/.config.yaml.tmp-0123456789abcdef", "ba");
}

}  // namespace stoker::test
