// How long training stands still for a checkpoint on the CPU: the copy of its state into a
// snapshot. The first one of a run also gets its memory from the system. Less is better.
#include <cstring>
#include <memory>
#include <vector>

#include "bench/benches.h"
#include "bench/checkpoint_peers.h"
#include "bench/saved_state.h"
#include "bench/scratch_folder.h"
#include "bench/stopwatch.h"
#include "daemon/checkpoint/snapshot.h"

namespace stoker::bench {
namespace {

void capture(const SavedState& state, writer::Snapshot& snapshot) {
  snapshot.begin();
  for (const auto& [part, views] :
       {std::pair{writer::Part::kModel, &state.model()}, {writer::Part::kOptim, &state.optim()}})
    for (const checkpoint::TensorView& view : *views)
      std::memcpy(snapshot.add(part, view.spec).data(), view.bytes.data(), view.bytes.size());
}

Result<double> milliseconds_of_capture(const SavedState& state, writer::Snapshot& snapshot) {
  const Stopwatch watch;
  capture(state, snapshot);
  return watch.seconds() * 1e3;
}

// Into memory that has been written to, and into fresh memory.
Result<double> milliseconds_of_copy(const SavedState& state, std::vector<std::byte>& target) {
  const Stopwatch watch;
  std::memcpy(target.data(), state.bytes().data(), state.bytes().size());
  asm volatile("" ::"r"(target.data()) : "memory");  // the copy counts as used
  return watch.seconds() * 1e3;
}

Result<double> milliseconds_of_new_copy(const SavedState& state) {
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
    const auto state = std::make_shared<SavedState>(bytes);
    const auto kept = std::make_shared<writer::Snapshot>();
    const auto target = std::make_shared<std::vector<std::byte>>(bytes, std::byte(1));
    capture(*state, *kept);
    STOKER_ASSIGN_OR_RETURN(const std::shared_ptr<ScratchFolder> folder,
                            ScratchFolder::create(options.dir));
    const std::string size = std::to_string(bytes / 1'000) + " kB";
    std::vector<Peer> peers{{"memcpy", [=] { return milliseconds_of_copy(*state, *target); }}};
    for (Peer& peer : checkpoint_peers({"torch.save", "dcp-async"}, Until::kBlocked, bytes, folder,
                                       [](double seconds) { return seconds * 1e3; }))
      peers.push_back(std::move(peer));
    return std::vector<Trial>{
        {"snapshot of " + size, "ms", [=] { return milliseconds_of_capture(*state, *kept); },
         std::move(peers)},
        {"first snapshot of " + size,
         "ms",
         [=] {
           writer::Snapshot fresh;
           return milliseconds_of_capture(*state, fresh);
         },
         {{"allocation and memcpy", [=] { return milliseconds_of_new_copy(*state); }}}}};
  };
  return {"snapshot-stall", "milliseconds that training stands still for a checkpoint", prepare};
}

}  // namespace stoker::bench
