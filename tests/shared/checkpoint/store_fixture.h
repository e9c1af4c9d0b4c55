// A directory of checkpoints for a test, with content that tells by its step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/store.h"
#include "tests/shared/checkpoint/raw_tensors.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::checkpoint {

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
