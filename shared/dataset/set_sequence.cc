#include "shared/dataset/set_sequence.h"

#include "shared/dataset/permutation.h"

namespace stoker::dataset {

SetSequence::Use PassSequence::at(uint64_t position, uint64_t attempt) const {
  const uint64_t size = order_.size();
  const uint64_t pass = position / size;
  const uint64_t place = (position % size + attempt % size) % size;
  return {.sample = order_.at(pass, place), .pass = pass};
}

SetSequence::Use DrawSequence::at(uint64_t position, uint64_t attempt) const {
  const uint64_t random = derived_seed(derived_seed(seed_, position), attempt);
  return {.sample = table_.draw(random), .pass = position};
}

}  // namespace stoker::dataset
