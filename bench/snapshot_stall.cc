// Stall of training for a checkpoint on the CPU: the copy of the state into a snapshot, whose memory is
// reserved before, as the trainer does before its first step. The first snapshot of a run is also the
// first to write to that memory. Lower is better.
#include <cstring>
#include <memory>
#include <vector>

#include "bench/benches.h"
#include "bench/checkpoint_baselines.h"
#include "bench/checkpoint_fixture.h"
#include "bench/scratch_folder.h"
#include "bench/stopwatch.h"
#include "daemon/writer/snapshot.h"

namespace stoker::bench {
namespace {

// Outside of the measured time.
void reserve(const CheckpointFixture& state, writer::Snapshot& snapshot) {
  uint64_t bytes = 0;
  for (const auto* views : {&state.model(), &state.optim()})
    for (const checkpoint::TensorView& view : *views)
      bytes += writer::Snapshot::aligned(view.bytes.size());
  snapshot.reserve(bytes);
}

void capture(const CheckpointFixture& state, writer::Snapshot& snapshot) {
  snapshot.begin();
  for (const auto& [part, views] : {std::pair{writer::Part::kModel, &state.model()},
                                    {writer::Part::kOptimizer, &state.optim()}})
    for (const checkpoint::TensorView& view : *views)
      std::memcpy(snapshot.add(part, view.spec).data(), view.bytes.data(), view.bytes.size());
}

Result<double> capture_ms(const CheckpointFixture& state, writer::Snapshot& snapshot) {
  const Stopwatch watch;
  capture(state, snapshot);
  return watch.seconds() * 1e3;
}

// Copies to memory that has already been written to; allocate_and_copy_ms() includes the
// allocation.
Result<double> copy_ms(const CheckpointFixture& state, std::vector<std::byte>& target) {
  const Stopwatch watch;
  std::memcpy(target.data(), state.bytes().data(), state.bytes().size());
  asm volatile("" ::"r"(target.data()) : "memory");  // keeps the copy from being optimized away
  return watch.seconds() * 1e3;
}

Result<double> allocate_and_copy_ms(const CheckpointFixture& state) {
  const Stopwatch watch;
  const auto target = std::make_unique_for_overwrite<std::byte[]>(state.bytes().size());
  std::memcpy(target.get(), state.bytes().data(), state.bytes().size());
  asm volatile("" ::"r"(target.get()) : "memory");
  return watch.seconds() * 1e3;
}

}  // namespace

Benchmark snapshot_stall() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    const size_t bytes = options.quick ? 1'200'000 : 1'200'000'000;
    const auto state = std::make_shared<CheckpointFixture>(bytes);
    const auto snapshot = std::make_shared<writer::Snapshot>();
    const auto target = std::make_shared<std::vector<std::byte>>(bytes, std::byte(1));
    reserve(*state, *snapshot);
    capture(*state, *snapshot);
    STOKER_ASSIGN_OR_RETURN(const std::shared_ptr<ScratchFolder> folder,
                            ScratchFolder::create(options.dir));
    const std::string size = std::to_string(bytes / 1'000) + " kB";
    std::vector<Baseline> baselines{{"memcpy", [=] { return copy_ms(*state, *target); }}};
    for (Baseline& baseline :
         checkpoint_baselines({"torch.save", "dcp-async"}, Until::kBlocked, bytes, folder,
                              [](double seconds) { return seconds * 1e3; }))
      baselines.push_back(std::move(baseline));
    return std::vector<Trial>{
        {"snapshot of " + size, "ms", [=] { return capture_ms(*state, *snapshot); },
         std::move(baselines)},
        {"first snapshot of " + size,
         "ms",
         [=] {
           writer::Snapshot first_snapshot;
           reserve(*state, first_snapshot);
           return capture_ms(*state, first_snapshot);
         },
         {{"allocation and memcpy", [=] { return allocate_and_copy_ms(*state); }}}}};
  };
  return {"snapshot-stall", "milliseconds that training is stalled for a checkpoint", prepare};
}

}  // namespace stoker::bench
