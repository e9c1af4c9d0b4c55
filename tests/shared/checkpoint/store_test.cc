#include "shared/checkpoint/store.h"

#include <fcntl.h>
#include <sys/file.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/temporary_directory.h"

namespace stoker::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CheckpointStoreTest : public StoreFixture {
 protected:
  // Changes one byte of the model file.
  void corrupt(uint64_t step) {
    const std::string path = path_of(step) + "/model.safetensors";
    std::string content = *read_file(path, 1 << 20);
    content.back() = static_cast<char>(content.back() ^ 1);
    test::write_whole(path, content);
  }
  // The checkpoint that open_newest() opens, and the steps of those that it rejects, in order.
  struct Choice {
    Result<VerifiedCheckpoint> opened;
    std::vector<uint64_t> rejected;
    std::vector<Status> reasons;
  };
  Choice choose() {
    std::vector<uint64_t> rejected;
    std::vector<Status> reasons;
    auto opened = store_.open_newest([&](const CheckpointEntry& entry, const Status& why) {
      rejected.push_back(entry.step);
      reasons.push_back(why);
    });
    return {std::move(opened), rejected, reasons};
  }
};

TEST_F(CheckpointStoreTest, FormatsNamesThatSortByStep) {
  EXPECT_EQ(CheckpointStore::checkpoint_name(1200), "step-000001200");
  EXPECT_EQ(CheckpointStore::checkpoint_name(0), "step-000000000");
  EXPECT_EQ(CheckpointStore::checkpoint_name(1'000'000'000), "step-1000000000");
  for (const uint64_t step : {uint64_t{0}, uint64_t{1}, uint64_t{999'999'999},
                              uint64_t{1'000'000'000}, std::numeric_limits<uint64_t>::max()})
    EXPECT_EQ(CheckpointStore::parse_checkpoint_name(CheckpointStore::checkpoint_name(step)), step);
}

TEST_F(CheckpointStoreTest, ParsesOnlyCanonicalName) {
  for (const char* name :
       {"", "step-", "step-1", "step-00000001", "step-0000000001", "step-+00000001",
        "step--00000001", "step-00000001x", " step-000000001", "step-000000001 ", "Step-000000001",
        ".tmp-step-000000001", "step-18446744073709551616", "step-00000000a", "latest"})
    EXPECT_FALSE(CheckpointStore::parse_checkpoint_name(name)) << name;
}

TEST_F(CheckpointStoreTest, CommitsCheckpointThatOpensVerified) {
  const auto written = store_.commit(TrainerState(7).content());
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  EXPECT_TRUE(is_complete(path_of(7), 7));
  EXPECT_FALSE(written->created_at.empty());
  EXPECT_THAT(written->stoker_version, HasSubstr("stoker "));
  EXPECT_EQ(names_in(path_of(7)),
            (std::vector<std::string>{"SHA256SUMS", "manifest.json", "model.safetensors",
                                      "optimizer.safetensors", "trainer_state.safetensors"}));
  const auto opened = CheckpointStore::open_verified(path_of(7));
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->manifest(), *written);
  EXPECT_EQ(opened->path(), path_of(7));
  EXPECT_EQ(opened->manifest_sha256(),
            sha256_hex(*read_file(path_of(7) + "/manifest.json", 1 << 20)));
  for (const WrittenFile& file : written->files)
    EXPECT_EQ(file.sha256, sha256_hex(*read_file(path_of(7) + "/" + file.name, 1 << 20)));
}

TEST_F(CheckpointStoreTest, CommitsCheckpointWithoutTensors) {
  CheckpointContent content;
  content.manifest.step = 3;
  ASSERT_TRUE(store_.commit(content).ok());
  EXPECT_TRUE(CheckpointStore::open_verified(path_of(3)).ok());
}

TEST_F(CheckpointStoreTest, WritesChecksumsVerifiedByCoreutils) {
  commit(1);
  const std::string check = "cd '" + path_of(1) + "' && sha256sum -c --strict --status SHA256SUMS";
  EXPECT_EQ(std::system(check.c_str()), 0);
  corrupt(1);
  EXPECT_NE(std::system((check + " 2>/dev/null").c_str()), 0);
}

TEST_F(CheckpointStoreTest, ListsEveryOtherFileInChecksums) {
  commit(1);
  const std::string sums = *read_file(path_of(1) + "/SHA256SUMS", 1 << 20);
  for (const std::string& name : names_in(path_of(1)))
    EXPECT_EQ(sums.find("  " + name + "\n") != std::string::npos, name != "SHA256SUMS") << name;
}

TEST_F(CheckpointStoreTest, PointsLatestAtNewestCheckpoint) {
  commit(1);
  EXPECT_EQ(fs::read_symlink(directory_ + "/latest"), "step-000000001");
  commit(2);
  EXPECT_EQ(fs::read_symlink(directory_ + "/latest"), "step-000000002");
  // Opened through the symlink, it reports its own path.
  const auto opened = CheckpointStore::open_verified(directory_ + "/latest");
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_TRUE(fs::equivalent(opened->path(), path_of(2)));
  EXPECT_TRUE(opened->path().ends_with("step-000000002"));
}

TEST_F(CheckpointStoreTest, CommitsCheckpointWhenLatestCannotBeReplaced) {
  fs::create_directories(directory_ + "/latest/nonempty");
  commit(1);
  EXPECT_TRUE(is_complete(path_of(1), 1));
}

TEST_F(CheckpointStoreTest, DoesNotOverwriteExistingStep) {
  commit(1);
  const auto again = store_.commit(TrainerState(1).content());
  EXPECT_EQ(again.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(again.status().message(), HasSubstr(path_of(1)));
  EXPECT_TRUE(is_complete(path_of(1), 1));
}

TEST_F(CheckpointStoreTest, PreservesForeignFileAtCheckpointPath) {
  fs::create_directories(directory_);
  test::write_whole(path_of(1), "existing");
  EXPECT_EQ(store_.commit(TrainerState(1).content()).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(*read_file(path_of(1), 100), "existing");
}

TEST_F(CheckpointStoreTest, RejectsCommitBeforeFirstWriteOnFullDisk) {
  commit(1);
  const size_t before = files_.operations().size();
  files_.set_free_bytes(1 << 20);
  const auto refused = store_.commit(TrainerState(2).content());
  EXPECT_EQ(refused.status().code(), StatusCode::kNoSpace);
  EXPECT_THAT(refused.status().message(),
              HasSubstr(directory_ + ": a checkpoint needs 2 MiB, 1 MiB are free;"));
  const auto operations = files_.operations();
  for (size_t i = before; i < operations.size(); ++i) {
    EXPECT_NE(operations[i].kind, test::Operation::Kind::kWrite);
    EXPECT_NE(operations[i].kind, test::Operation::Kind::kMakeDirectory);
  }
}

TEST_F(CheckpointStoreTest, LeavesNoFilesWhenTensorsAreInvalid) {
  TrainerState state(1);
  CheckpointContent content = state.content();
  content.state.push_back(content.state[0]);  // duplicate name
  EXPECT_EQ(store_.commit(content).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(names_in(directory_).empty());
  commit(1);
  EXPECT_TRUE(is_complete(path_of(1), 1));
}

TEST_F(CheckpointStoreTest, ListsOnlyCanonicalNamesOldestFirst) {
  EXPECT_TRUE(steps_of(store_).empty());  // the directory does not exist yet
  for (const uint64_t step : {uint64_t{1'000'000'000}, uint64_t{20}, uint64_t{3}}) commit(step);
  fs::create_directories(directory_ + "/step-7");
  fs::create_directories(directory_ + "/.tmp-step-000000008");
  fs::create_directories(directory_ + "/archived.1.step-000000009");
  test::write_whole(directory_ + "/step-000000010", "a file");
  EXPECT_EQ(steps_of(store_), (std::vector<uint64_t>{3, 20, 1'000'000'000}));
  EXPECT_EQ((*store_.list())[0].path, path_of(3));
}

TEST_F(CheckpointStoreTest, OpensNewestCheckpoint) {
  for (const uint64_t step : {1, 2, 3}) commit(step);
  const Choice choice = choose();
  ASSERT_TRUE(choice.opened.ok());
  EXPECT_EQ(choice.opened->manifest().step, 3U);
  EXPECT_TRUE(choice.rejected.empty());
}

TEST_F(CheckpointStoreTest, FallsBackToNewestValidCheckpointAndReportsRejected) {
  for (const uint64_t step : {1, 2, 3, 4}) commit(step);
  corrupt(3);
  fs::remove(path_of(4) + "/SHA256SUMS");
  const Choice choice = choose();
  ASSERT_TRUE(choice.opened.ok());
  EXPECT_EQ(choice.opened->manifest().step, 2U);
  EXPECT_EQ(choice.rejected, (std::vector<uint64_t>{4, 3}));
  EXPECT_THAT(choice.reasons[0].message(), HasSubstr("SHA256SUMS"));
  EXPECT_THAT(choice.reasons[1].message(), HasSubstr("model.safetensors"));
  EXPECT_EQ(steps_of(store_).size(), 4U) << "nothing is deleted";
}

TEST_F(CheckpointStoreTest, ReportsNotFoundWithoutCheckpoints) {
  EXPECT_EQ(choose().opened.status().code(), StatusCode::kNotFound);
  fs::create_directories(directory_ + "/.tmp-step-000000001");
  EXPECT_EQ(choose().opened.status().code(), StatusCode::kNotFound);
}

TEST_F(CheckpointStoreTest, ReportsCorruptWhenAllCheckpointsAreCorrupt) {
  for (const uint64_t step : {1, 2}) commit(step), corrupt(step);
  const Choice choice = choose();
  EXPECT_EQ(choice.opened.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(choice.opened.status().message(), HasSubstr("step-000000002"));
  EXPECT_EQ(choice.rejected, (std::vector<uint64_t>{2, 1}));
}

TEST_F(CheckpointStoreTest, ReportsCorruptOnEmptyStepDirectory) {
  fs::create_directories(path_of(5));
  const Choice choice = choose();
  EXPECT_EQ(choice.opened.status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(choice.rejected, (std::vector<uint64_t>{5}));
}

TEST_F(CheckpointStoreTest, OpensNewestCheckpointWithoutRejectionCallback) {
  commit(1), commit(2), corrupt(2);
  const auto opened = store_.open_newest(nullptr);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->manifest().step, 1U);
}

TEST_F(CheckpointStoreTest, RemovesOnlyOwnTemporaryDirectoriesOnCleanup) {
  EXPECT_TRUE(store_.clean_up().ok());  // the directory does not exist yet
  commit(1);
  for (const char* name : {".tmp-step-000000002/sub", ".trash-step-000000000", "notes", ".keep"})
    fs::create_directories(directory_ + "/" + name);
  test::write_whole(directory_ + "/.tmp-step-000000002/model.safetensors", "half");
  test::write_whole(directory_ + "/.tmp-file", "");
  fs::create_directory_symlink(path_of(1), directory_ + "/.trash-link");
  ASSERT_TRUE(store_.clean_up().ok());
  EXPECT_EQ(names_in(directory_),
            (std::vector<std::string>{".keep", "latest", "notes", "step-000000001"}));
  EXPECT_TRUE(is_complete(path_of(1), 1)) << "a link is not followed";
}

TEST_F(CheckpointStoreTest, ReportsNotFoundOnMissingTensorFile) {
  commit(1);
  const auto opened = CheckpointStore::open_verified(path_of(1));
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->open_tensors("other.safetensors").status().code(), StatusCode::kNotFound);
}

TEST_F(CheckpointStoreTest, DoesNotRecreateRemovedDirectory) {
  commit(1);
  std::filesystem::rename(directory_, directory_ + "-moved");
  const auto refused = store_.commit(TrainerState(2).content());
  EXPECT_EQ(refused.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(refused.status().message(), HasSubstr("moved or removed; restore it"));
  EXPECT_FALSE(std::filesystem::exists(directory_));
  std::filesystem::rename(directory_ + "-moved", directory_);
  EXPECT_TRUE(store_.commit(TrainerState(2).content()).ok());
  EXPECT_EQ(steps_of(store_), (std::vector<uint64_t>{1, 2}));
}

TEST_F(CheckpointStoreTest, WritesAndDeletesNothingInReplacedDirectory) {
  for (const uint64_t step : {1U, 2U, 3U}) commit(step);
  std::filesystem::rename(directory_, directory_ + "-moved");
  CheckpointStore another(directory_, files_);
  for (const uint64_t step : {1U, 2U, 3U})
    ASSERT_TRUE(another.commit(TrainerState(step).content()).ok());
  const auto before = names_in(directory_);
  EXPECT_THAT(store_.commit(TrainerState(4).content()).status().message(),
              HasSubstr("is not the directory in which this run started"));
  EXPECT_EQ(store_.delete_checkpoints(std::vector<uint64_t>{1, 2}).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(store_.clean_up().code(), StatusCode::kNotFound);
  EXPECT_EQ(names_in(directory_), before);
}

TEST_F(CheckpointStoreTest, ReservesSpaceOfAllFilesBeforeFirstWrite) {
  commit(1);
  using Kind = test::Operation::Kind;
  size_t reserved = 0;
  bool is_written = false;
  for (const test::Operation& operation : files_.operations()) {
    if (operation.kind == Kind::kReserve && operation.path.ends_with(".safetensors")) {
      EXPECT_FALSE(is_written) << operation.path;
      ++reserved;
    }
    is_written |= operation.kind == Kind::kWrite;
  }
  EXPECT_EQ(reserved, 3U);
}

TEST_F(CheckpointStoreTest, OpensLockedCheckpointAgainAsLongAsCallerWaits) {
  commit(1);
  commit(2);
  UniqueFd held(::open((path_of(2) + "/manifest.json").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(CheckpointStore::open_verified(path_of(2)).status().code(), StatusCode::kBusy);
  EXPECT_EQ(store_.open_newest(nullptr)->manifest().step, 1U) << "retention is deleting step 2";
  int waits = 0;
  const auto opened = store_.open_newest(nullptr, [&](const Status& locked) {
    EXPECT_THAT(locked.message(), HasSubstr(path_of(2) + "/manifest.json: locked exclusively by "));
    if (++waits == 2) held.reset();
    return Status();
  });
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->manifest().step, 2U);
  EXPECT_EQ(waits, 2);
}

// A reader that repeatedly opens the newest checkpoint, while a writer keeps only one.
TEST_F(CheckpointStoreTest, OpensOnlyCompleteCheckpointsDuringCommitAndDeletion) {
  commit(1);
  int opened_count = 0;
  std::jthread reader([&](const std::stop_token& stop) {
    CheckpointStore store(directory_, default_file_system());
    do {
      const auto opened = store.open_newest([](const CheckpointEntry& entry, const Status& why) {
        ADD_FAILURE() << entry.path << ": " << why.to_string();
      });
      if (opened.ok()) ++opened_count;
      if (!opened.ok()) {  // all listed checkpoints have been deleted since
        EXPECT_EQ(opened.status().code(), StatusCode::kNotFound) << opened.status().to_string();
      }
    } while (!stop.stop_requested());
  });
  for (uint64_t step = 2; step < 60; ++step) {
    commit(step);
    EXPECT_TRUE(store_.delete_checkpoints(std::vector<uint64_t>{step - 1}).ok());
  }
  reader.request_stop();
  reader.join();
  EXPECT_GT(opened_count, 0);
}

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
  EXPECT_EQ(delete_checkpoints({1, 3}), Steps{}) << "they are already deleted";
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
    ASSERT_EQ(deleted->blocked.size(), 1U);
    EXPECT_EQ(deleted->blocked[0].step, 1U);
    EXPECT_EQ(deleted->blocked[0].reason.code(), StatusCode::kBusy);
    EXPECT_EQ(steps_of(store_), (Steps{1, 3}));
  }
  EXPECT_EQ(delete_checkpoints({1}), (Steps{1}));
}

// As on NFS, where an exclusive lock needs a writable descriptor, and without lockd.
TEST_F(DeleteCheckpointsTest, DeletesNothingThatItCannotLock) {
  commit_up_to(3);
  files_.fail_locks(true);
  const auto blocked = store_.delete_checkpoints(Steps{1, 2});
  ASSERT_TRUE(blocked.ok()) << blocked.status().to_string();
  EXPECT_EQ(blocked->deleted_steps, Steps{});
  ASSERT_EQ(blocked->blocked.size(), 2U);
  EXPECT_EQ(blocked->blocked[0].reason.code(), StatusCode::kIoError);
  EXPECT_THAT(blocked->blocked[0].reason.message(), HasSubstr("SHA256SUMS: Bad file descriptor"));
  EXPECT_EQ(steps_of(store_), (Steps{1, 2, 3}));
  files_.fail_locks(false);
  EXPECT_EQ(delete_checkpoints({1, 2}), (Steps{1, 2}));
}

TEST_F(DeleteCheckpointsTest, LocksThroughWritableDescriptor) {
  commit_up_to(2);
  const size_t before = files_.operations().size();
  EXPECT_EQ(delete_checkpoints({1}), (Steps{1}));
  const test::Operation opened = files_.operations().at(before);
  EXPECT_EQ(opened.path, path_of(1) + "/SHA256SUMS");
  EXPECT_EQ(opened.flags & O_ACCMODE, O_RDWR);
}

// Even if locks do not work and the files are deleted while open.
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
        EXPECT_TRUE(!deleted_steps.ok() || !deleted_steps->blocked.empty());
        EXPECT_THAT(steps_of(store), ::testing::IsSupersetOf({3u, 4u}));
        for (const uint64_t step : steps_of(store))
          EXPECT_TRUE(is_complete(
              join_path(store.directory(), CheckpointStore::checkpoint_name(step)), step));
        files.heal();
        EXPECT_TRUE(store.clean_up().ok());
        EXPECT_TRUE(store.delete_checkpoints(Steps{1, 2}).ok());
        EXPECT_EQ(steps_of(store), (Steps{3, 4}));
        EXPECT_EQ(names_in(store.directory()).size(), 3U);  // including `latest`
      }
    }
  }
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointClassWeightsTest : public ::testing::Test {
 protected:
  Result<std::vector<double>> read_back(const OwnedTensor& tensor) {
    CheckpointContent content;
    content.manifest.step = ++step_;
    content.manifest.live_settings = "{}";
    const std::vector<OwnedTensor> tensors{tensor};
    content.model = content.optim = content.state = views_of(tensors);
    CheckpointStore store(scratch_ / "checkpoints", default_file_system());
    const auto committed = store.commit(content);
    EXPECT_TRUE(committed.ok()) << committed.status().to_string();
    STOKER_ASSIGN_OR_RETURN(
        const auto saved, CheckpointStore::open_verified(scratch_ / "checkpoints" + "/" +
                                                         CheckpointStore::checkpoint_name(step_)));
    return read_class_weights(saved);
  }
  static OwnedTensor weights(const std::vector<double>& numbers) {
    OwnedTensor tensor =
        make_tensor(kClassWeights, DType::kF64, {static_cast<int64_t>(numbers.size())});
    std::memcpy(tensor.bytes.data(), numbers.data(), tensor.bytes.size());
    return tensor;
  }

  const test::TemporaryDirectory scratch_;
  uint64_t step_ = 0;
};

TEST_F(CheckpointClassWeightsTest, LoadsWeightsBitForBit) {
  EXPECT_THAT(*read_back(weights({1.0 / 3, 0, 1e6})), ElementsAre(1.0 / 3, 0, 1e6));
}

TEST_F(CheckpointClassWeightsTest, ReturnsEmptyListWhenWeightsAreAbsent) {
  EXPECT_THAT(*read_back(make_tensor("other", DType::kF64, {3})), IsEmpty());
}

TEST_F(CheckpointClassWeightsTest, ReportsCorruptStateOnInvalidWeights) {
  for (const OwnedTensor& wrong :
       {weights({1, -1}), weights({1, std::nan("")}), weights({1, INFINITY}),
        make_tensor(kClassWeights, DType::kF32, {3}),
        make_tensor(kClassWeights, DType::kF64, {3, 1})}) {
    const Status status = read_back(wrong).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("trainer_state.safetensors: "));
  }
}

}  // namespace
}  // namespace stoker::checkpoint
