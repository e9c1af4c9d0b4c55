#include "tests/reliability/minimal_state.h"

#include <algorithm>
#include <span>

namespace stoker::test {
namespace {

template <typename Numbers>
void add_tensor(writer::Snapshot& snapshot, writer::Part part, const std::string& name,
                const Numbers& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  const auto buffer =
      snapshot.add(part, {name, DType::kI64, {static_cast<int64_t>(numbers.size())}});
  std::ranges::copy(bytes, buffer.begin());
}

// From one file, or from the shards of several ranks.
template <typename Numbers>
Status read_optimizer(const checkpoint::VerifiedCheckpoint& checkpoint, const std::string& name,
                      Numbers& numbers) {
  STOKER_ASSIGN_OR_RETURN(const auto tensors, checkpoint.open_optimizer());
  return tensors->read(name, std::as_writable_bytes(std::span(numbers)));
}

template <typename Numbers>
Status read_tensor(const checkpoint::VerifiedCheckpoint& checkpoint, const std::string& file,
                   const std::string& name, Numbers& numbers) {
  STOKER_ASSIGN_OR_RETURN(const auto tensors, checkpoint.open_tensors(file));
  return tensors->read(name, std::as_writable_bytes(std::span(numbers)));
}

}  // namespace

MinimalState MinimalState::at(uint64_t step) {
  MinimalState state;
  while (state.step < step) state.advance();
  return state;
}

void MinimalState::advance() {
  ++step;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto value = static_cast<uint64_t>(weights[i]) * 6364136223846793005u + step * (i + 1);
    momentum[i] = momentum[i] / 2 + static_cast<int64_t>(value >> 40);
    weights[i] = static_cast<int64_t>(value) ^ momentum[i];
  }
}

double MinimalState::loss() const {
  return static_cast<double>(weights[step % weights.size()] % 1000);
}

void MinimalState::put_into(writer::Snapshot& snapshot) const {
  snapshot.begin();
  add_tensor(snapshot, writer::Part::kModel, "weights", weights);
  add_tensor(snapshot, writer::Part::kOptimizer, "momentum", momentum);
  add_tensor(snapshot, writer::Part::kTrainerState, "step",
             std::array<int64_t, 1>{static_cast<int64_t>(step)});
}

Result<MinimalState> MinimalState::read_from(const checkpoint::VerifiedCheckpoint& checkpoint) {
  MinimalState state;
  std::array<int64_t, 1> step{};
  STOKER_RETURN_IF_ERROR(read_tensor(checkpoint, "model.safetensors", "weights", state.weights));
  STOKER_RETURN_IF_ERROR(read_optimizer(checkpoint, "momentum", state.momentum));
  STOKER_RETURN_IF_ERROR(read_tensor(checkpoint, "trainer_state.safetensors", "step", step));
  state.step = static_cast<uint64_t>(step[0]);
  return state;
}

}  // namespace stoker::test
