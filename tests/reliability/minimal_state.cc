#include "tests/reliability/minimal_state.h"

#include <algorithm>
#include <span>

namespace stoker::test {
namespace {

template <typename Numbers>
void put(checkpoint::Snapshot& snapshot, checkpoint::Part part, const std::string& name,
         const Numbers& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  const auto room = snapshot.add(part, {name, DType::kI64, {static_cast<int64_t>(numbers.size())}});
  std::ranges::copy(bytes, room.begin());
}

template <typename Numbers>
Status take(const checkpoint::VerifiedCheckpoint& checkpoint, const std::string& file,
            const std::string& name, Numbers& numbers) {
  STOKER_ASSIGN_OR_RETURN(const auto tensors, checkpoint.open_tensors(file));
  return tensors->read(name, std::as_writable_bytes(std::span(numbers)));
}

}  // namespace

BareState BareState::at(uint64_t step) {
  BareState state;
  while (state.step < step) state.advance();
  return state;
}

void BareState::advance() {
  ++step;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto mixed = static_cast<uint64_t>(weights[i]) * 6364136223846793005u + step * (i + 1);
    momentum[i] = momentum[i] / 2 + static_cast<int64_t>(mixed >> 40);
    weights[i] = static_cast<int64_t>(mixed) ^ momentum[i];
  }
}

double BareState::loss() const {
  return static_cast<double>(weights[step % weights.size()] % 1000);
}

void BareState::put_into(checkpoint::Snapshot& snapshot) const {
  snapshot.begin();
  put(snapshot, checkpoint::Part::kModel, "weights", weights);
  put(snapshot, checkpoint::Part::kOptim, "momentum", momentum);
  put(snapshot, checkpoint::Part::kState, "step",
      std::array<int64_t, 1>{static_cast<int64_t>(step)});
}

Result<BareState> BareState::read_from(const checkpoint::VerifiedCheckpoint& checkpoint) {
  BareState state;
  std::array<int64_t, 1> step{};
  STOKER_RETURN_IF_ERROR(take(checkpoint, "model.safetensors", "weights", state.weights));
  STOKER_RETURN_IF_ERROR(take(checkpoint, "optimizer.safetensors", "momentum", state.momentum));
  STOKER_RETURN_IF_ERROR(take(checkpoint, "trainer_state.safetensors", "step", step));
  state.step = static_cast<uint64_t>(step[0]);
  return state;
}

}  // namespace stoker::test
