#include "shared/dataset/set_sequence.h"

#include <algorithm>
#include <array>

#include "shared/dataset/permutation.h"

namespace stoker::dataset {
namespace {

constexpr size_t kAtOnce = 64;

}  // namespace

SetSequence::Use PassSequence::at(uint64_t position, uint64_t attempt) const {
  const uint64_t size = order_.size();
  const uint64_t pass = position / size;
  const uint64_t place = (position % size + attempt % size) % size;
  return {.sample = order_.at(pass, place), .pass = pass};
}

void PassSequence::at(uint64_t position, std::span<Use> uses) const {
  const uint64_t size = order_.size();
  std::array<uint64_t, kAtOnce> samples;
  while (!uses.empty()) {
    const uint64_t pass = position / size;
    const uint64_t place = position % size;
    const size_t count = std::min<uint64_t>({uses.size(), kAtOnce, size - place});
    order_.at(pass, place, std::span(samples).first(count));
    for (size_t i = 0; i < count; ++i) uses[i] = {.sample = samples[i], .pass = pass};
    uses = uses.subspan(count);
    position += count;
  }
}

SetSequence::Use DrawSequence::at(uint64_t position, uint64_t attempt) const {
  const uint64_t random = derived_seed(derived_seed(seed_, position), attempt);
  return {.sample = table_.draw(random), .pass = position};
}

void DrawSequence::at(uint64_t position, std::span<Use> uses) const {
  for (Use& use : uses) use = at(position++, 0);
}

}  // namespace stoker::dataset
