// Safetensors files put together by hand, valid or not, tensors to write, and directories of checkpoints
// whose content tells by its step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/tensor_source.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::checkpoint {

// Length, header, data; the header is taken as it is.
std::string raw_tensors(const std::string& header, const std::string& data);
// The same with a length of the caller's choice.
std::string raw_tensors_of_length(uint64_t length, const std::string& rest);

// A tensor that owns its bytes.
struct OwnedTensor {
  TensorSpec spec;
  std::vector<std::byte> bytes;
  TensorView view() const { return {spec, bytes}; }
};

// Bytes that differ from tensor to tensor and from place to place.
OwnedTensor make_tensor(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                        unsigned seed = 1);
std::vector<OwnedTensor> one_of_each_dtype();
TensorViews views_of(const std::vector<OwnedTensor>& tensors);

// What a trainer would save at `step`. Owns the tensors.
struct TrainerState {
  explicit TrainerState(uint64_t step);
  CheckpointContent content() const;

  Manifest manifest;
  std::vector<OwnedTensor> model, optim, state;
};

std::vector<uint64_t> steps_of(const CheckpointStore& store);
std::vector<std::string> names_in(const std::string& directory);  // all, hidden ones too
// Every file of the directory, which is flat.
std::vector<std::string> files_in(const std::string& checkpoint);

// Verifies, and holds bit for bit what TrainerState(step) has.
::testing::AssertionResult is_complete(const std::string& checkpoint, uint64_t step);

class StoreFixture : public ::testing::Test {
 protected:
  // Commits with a plain disk; the checkpoint's path.
  std::string commit(uint64_t step);
  std::string path_of(uint64_t step) const;

  test::TemporaryDirectory scratch_;
  const std::string directory_ = scratch_ / "run/checkpoints";
  test::FaultyFiles files_{scratch_.path()};  // spares the waiting for the disk
  CheckpointStore store_{directory_, files_};
};

}  // namespace stoker::checkpoint
