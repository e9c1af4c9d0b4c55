#include <filesystem>

#include "tests/shared/checkpoint/store_fixture.h"

namespace stoker::checkpoint {
namespace {

using test::Fault;
using Steps = std::vector<uint64_t>;

class DeleteCheckpointsTest : public StoreFixture {
 protected:
  void commit_up_to(uint64_t last) {
    for (uint64_t step = 1; step <= last; ++step) commit(step);
  }
  Steps delete_checkpoints(const Steps& steps) {
    const auto deleted = store_.delete_checkpoints(steps);
    EXPECT_TRUE(deleted.ok()) << deleted.status().to_string();
    return deleted.ok() ? deleted->deleted_steps : Steps{};
  }
};

TEST_F(DeleteCheckpointsTest, DeletesOnlyRequestedSteps) {
  commit_up_to(5);
  EXPECT_EQ(delete_checkpoints({1, 3}), (Steps{1, 3}));
  EXPECT_EQ(names_in(directory_), (std::vector<std::string>{"latest", "step-000000002",
                                                            "step-000000004", "step-000000005"}));
  for (const uint64_t step : {2U, 4U, 5U}) EXPECT_TRUE(is_complete(path_of(step), step));
  EXPECT_EQ(delete_checkpoints({1, 3}), Steps{}) << "they are gone already";
  EXPECT_EQ(delete_checkpoints({}), Steps{});
}

TEST_F(DeleteCheckpointsTest, NeverDeletesNewestCheckpoint) {
  commit_up_to(2);
  EXPECT_EQ(delete_checkpoints({1, 2}), (Steps{1}));
  EXPECT_EQ(delete_checkpoints({2}), Steps{});
  EXPECT_EQ(steps_of(store_), (Steps{2}));
}

TEST_F(DeleteCheckpointsTest, DefersDeletionWhileCheckpointIsOpen) {
  commit_up_to(3);
  {
    const auto held = CheckpointStore::open_verified(path_of(1));
    ASSERT_TRUE(held.ok());
    const auto deleted = store_.delete_checkpoints(Steps{1, 2});
    ASSERT_TRUE(deleted.ok());
    EXPECT_EQ(deleted->deleted_steps, (Steps{2}));
    EXPECT_EQ(deleted->blocked, (Steps{1}));
    EXPECT_EQ(steps_of(store_), (Steps{1, 3}));
  }
  EXPECT_EQ(delete_checkpoints({1}), (Steps{1}));
}

// Even where locks do not work, and the files are deleted under it.
TEST_F(DeleteCheckpointsTest, ReadsAllTensorsWhenFilesAreDeletedAfterOpen) {
  commit(1);
  const auto held = CheckpointStore::open_verified(path_of(1));
  ASSERT_TRUE(held.ok());
  std::filesystem::remove_all(path_of(1));
  const TrainerState due(1);
  for (const auto& [name, tensors] :
       {std::pair("model.safetensors", &due.model), std::pair("optimizer.safetensors", &due.optim),
        std::pair("trainer_state.safetensors", &due.state)}) {
    const auto file = held->open_tensors(name);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    for (const OwnedTensor& tensor : *tensors) {
      std::vector<std::byte> bytes(tensor.bytes.size());
      ASSERT_TRUE((*file)->read(tensor.spec.name, bytes).ok());
      EXPECT_EQ(bytes, tensor.bytes);
    }
  }
}

// Tensors opened from a checkpoint hold it as well: the evaluator lets the rest go.
TEST_F(DeleteCheckpointsTest, ReadsOpenTensorFileAfterCheckpointIsDeleted) {
  commit_up_to(2);
  std::unique_ptr<SafetensorsFile> file;
  {
    const auto held = CheckpointStore::open_verified(path_of(1));
    ASSERT_TRUE(held.ok());
    file = *held->open_tensors("model.safetensors");
  }
  EXPECT_EQ(delete_checkpoints({1}), (Steps{1}));
  const OwnedTensor due = TrainerState(1).model[0];
  std::vector<std::byte> bytes(due.bytes.size());
  ASSERT_TRUE(file->read(due.spec.name, bytes).ok());
  EXPECT_EQ(bytes, due.bytes);
}

TEST_F(DeleteCheckpointsTest, DeletesIncompleteCheckpointsOnRequest) {
  commit_up_to(3);
  std::filesystem::remove(path_of(1) + "/SHA256SUMS");
  std::filesystem::remove_all(path_of(2));
  std::filesystem::create_directory(path_of(2));
  EXPECT_EQ(delete_checkpoints({1, 2}), (Steps{1, 2}));
}

TEST_F(DeleteCheckpointsTest, DeletesNothingWithMissingDirectory) {
  EXPECT_EQ(delete_checkpoints({1, 2}), Steps{});
}

TEST_F(DeleteCheckpointsTest, CompletesDeletionInterruptedByKill) {
  commit_up_to(2);
  std::filesystem::create_directories(directory_ + "/.trash-step-000000001/sub");
  EXPECT_EQ(delete_checkpoints({1}), (Steps{1}));
  EXPECT_EQ(names_in(directory_), (std::vector<std::string>{"latest", "step-000000002"}));
}

TEST_F(DeleteCheckpointsTest, PreservesRemainingCheckpointsOnFaultAtAnyOperation) {
  for (const bool kill : {false, true}) {
    for (const Fault::Extent extent :
         {Fault::Extent::kNothing, Fault::Extent::kHalf, Fault::Extent::kAll}) {
      for (uint64_t at = 1;; ++at) {
        test::TemporaryDirectory scratch;
        test::FaultyFiles files(scratch.path());
        CheckpointStore store(scratch / "checkpoints", files);
        for (uint64_t step = 1; step <= 4; ++step)
          ASSERT_TRUE(store.commit(TrainerState(step).content()).ok());
        const uint64_t before = files.operations().size();
        files.fail_at(before + at, {EIO, extent, kill});
        const auto deleted_steps = store.delete_checkpoints(Steps{1, 2});
        if (files.operations().size() < before + at) {
          EXPECT_GT(at, 5U);
          break;
        }
        SCOPED_TRACE(to_string(files.operations()[before + at - 1]) + (kill ? ", killed" : ""));
        EXPECT_FALSE(deleted_steps.ok());
        for (const uint64_t step : steps_of(store))
          EXPECT_TRUE(is_complete(
              join_path(store.directory(), CheckpointStore::checkpoint_name(step)), step));
        files.heal();
        EXPECT_TRUE(store.clean_up().ok());
        EXPECT_TRUE(store.delete_checkpoints(Steps{1, 2}).ok());
        EXPECT_EQ(steps_of(store), (Steps{3, 4}));
        EXPECT_EQ(names_in(store.directory()).size(), 3U);  // and latest
      }
    }
  }
}

}  // namespace
}  // namespace stoker::checkpoint
