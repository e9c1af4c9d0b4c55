// SequenceFixture: opens datasets of sequences and reads samples as in a batch of a given length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::testing {

class SequenceFixture : public FolderFixture {
 protected:
  // Reads into memory with previous contents, as in a batch of that length.
  static Sample read_in_batch(const Dataset& dataset, uint64_t sample, uint64_t length) {
    Sample read;
    std::vector<std::span<std::byte>> outputs;
    for (const TensorSpec& spec : dataset.spec_of_length(length))
      read.tensors.emplace_back(spec.bytes(), std::byte{0xee});
    for (auto& tensor : read.tensors) outputs.emplace_back(tensor);
    read.status = dataset.read(sample, {}, outputs);
    return read;
  }
};

}  // namespace stoker::data::testing
