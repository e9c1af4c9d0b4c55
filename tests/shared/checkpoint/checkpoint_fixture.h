// checkpoint_fixture: handwritten safetensors files (valid and invalid), random tensors, and
// checkpoints whose content depends on their step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/tensor_source.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::checkpoint {

// Length, header, data; the header is used unchanged.
std::string raw_tensors(const std::string& header, const std::string& data);
// The same with an explicit header length.
std::string raw_tensors_of_length(uint64_t length, const std::string& rest);

// A tensor that owns its bytes.
struct OwnedTensor {
  TensorSpec spec;
  std::vector<std::byte> bytes;
  TensorView view() const { return {spec, bytes}; }
};

// Pseudorandom bytes from `seed`.
OwnedTensor make_tensor(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                        unsigned seed = 1);
std::vector<OwnedTensor> one_of_each_dtype();
TensorViews views_of(const std::vector<OwnedTensor>& tensors);

// A file with the content of make_safetensors_layout(): creates `directory`/`name` (it must not exist), writes it and syncs it. Writes nothing if
// make_safetensors_layout() fails.
Result<WrittenFile> write_safetensors(FileSystem& files, const std::string& directory,
                                      const std::string& name, const TensorViews& tensors,
                                      const std::map<std::string, std::string>& metadata);

// The content of a training checkpoint at `step`. Owns the tensors.
struct TrainerState {
  explicit TrainerState(uint64_t step);
  CheckpointContent content() const;

  Manifest manifest;
  std::vector<OwnedTensor> model, optim, state;
};

std::vector<uint64_t> steps_of(const CheckpointStore& store);
std::vector<std::string> names_in(const std::string& directory);  // including hidden ones
// All files of the (flat) directory.
std::vector<std::string> files_in(const std::string& checkpoint);

// True if the checkpoint verifies and is bit-identical to TrainerState(step).
::testing::AssertionResult is_complete(const std::string& checkpoint, uint64_t step);

class StoreFixture : public ::testing::Test {
 protected:
  // Commits without faults; returns the checkpoint path.
  std::string commit(uint64_t step);
  std::string path_of(uint64_t step) const;

  test::TemporaryDirectory scratch_;
  const std::string directory_ = scratch_ / "run/checkpoints";
  test::FaultyFiles files_{scratch_.path()};  // does not wait for the disk
  CheckpointStore store_{directory_, files_};
};

}  // namespace stoker::checkpoint
