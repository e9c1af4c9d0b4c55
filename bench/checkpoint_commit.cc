// Throughput of a durable checkpoint commit in MB/s: hash, write, sync, rename. Baselines write the
// same bytes to one file, with and without a final sync; the difference is the cost of a commit
// beyond the disk. Python baselines hold a state of the same size in their own memory.
#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "bench/benches.h"
#include "bench/checkpoint_baselines.h"
#include "bench/checkpoint_fixture.h"
#include "bench/scratch_folder.h"
#include "bench/stopwatch.h"
#include "shared/base/file.h"
#include "shared/checkpoint/store.h"

namespace stoker::bench {
namespace {

struct CommitDisk {
  explicit CommitDisk(size_t bytes) : state(bytes) {}
  CheckpointFixture state;
  std::shared_ptr<ScratchFolder> folder;

  double megabytes_per_second(const Stopwatch& watch) const {
    return static_cast<double>(state.bytes().size()) / watch.seconds() / 1e6;
  }
};

Result<double> commit(const CommitDisk& disk) {
  const std::string directory = disk.folder->file("checkpoints");
  checkpoint::CheckpointStore store(directory, default_file_system());
  checkpoint::CheckpointContent content;
  content.manifest.step = 1;
  content.model = disk.state.model();
  content.optim = disk.state.optim();
  const Stopwatch watch;
  STOKER_RETURN_IF_ERROR(store.commit(content).status());
  const double rate = disk.megabytes_per_second(watch);
  STOKER_RETURN_IF_ERROR(default_file_system().remove_tree(directory));
  return rate;
}

Result<double> write_file(const CommitDisk& disk, bool sync) {
  constexpr size_t kChunk = 1 << 20;
  const std::string path = disk.folder->file("plain");
  const std::span<const std::byte> bytes = disk.state.bytes();
  const Stopwatch watch;
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd,
                          default_file_system().open(path, O_WRONLY | O_CREAT | O_EXCL, 0640));
  for (size_t at = 0; at < bytes.size(); at += kChunk)
    STOKER_RETURN_IF_ERROR(default_file_system().write(
        fd.get(), bytes.subspan(at, std::min(kChunk, bytes.size() - at)), path));
  if (sync) STOKER_RETURN_IF_ERROR(default_file_system().sync(fd.get(), path));
  fd.reset();
  const double rate = disk.megabytes_per_second(watch);
  STOKER_RETURN_IF_ERROR(default_file_system().remove_file(path));  // also drops its dirty pages
  return rate;
}

}  // namespace

Benchmark checkpoint_commit() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    const size_t bytes = options.quick ? 1'200'000 : 1'200'000'000;
    const auto disk = std::make_shared<CommitDisk>(bytes);
    STOKER_ASSIGN_OR_RETURN(disk->folder, ScratchFolder::create(options.dir));
    Trial trial{"commit of " + std::to_string(bytes / 1'000) + " kB",
                "MB/s",
                [=] { return commit(*disk); },
                {{"write and fsync", [=] { return write_file(*disk, true); }},
                 {"write without sync", [=] { return write_file(*disk, false); }}}};
    for (Baseline& baseline : checkpoint_baselines(
             {"safetensors", "torch.save", "dcp", "dcp-async"}, Until::kDurable, bytes,
             disk->folder,
             [=](double seconds) { return static_cast<double>(bytes) / seconds / 1e6; }))
      trial.baselines.push_back(std::move(baseline));
    return std::vector<Trial>{std::move(trial)};
  };
  return {"checkpoint-commit", "megabytes of state per second made durable (--dir: which disk)",
          prepare};
}

}  // namespace stoker::bench
