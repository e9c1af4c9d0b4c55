#include "shared/checkpoint/store.h"

#include <fcntl.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <thread>

#include "shared/base/sha256.h"
#include "tests/shared/checkpoint/store_fixture.h"

namespace stoker::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CheckpointStoreTest : public StoreFixture {
 protected:
  // A byte of the model's file is another one.
  void damage(uint64_t step) {
    const std::string path = path_of(step) + "/model.safetensors";
    std::string content = *read_file(path, 1 << 20);
    content.back() = static_cast<char>(content.back() ^ 1);
    test::write_whole(path, content);
  }
  // Steps of the checkpoints that open_newest() turns down, in order, and of the one that it takes.
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
  EXPECT_FALSE(written->created.empty());
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
  damage(1);
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
  // Opened by that name, it is known by its own.
  const auto opened = CheckpointStore::open_verified(directory_ + "/latest");
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_TRUE(fs::equivalent(opened->path(), path_of(2)));
  EXPECT_TRUE(opened->path().ends_with("step-000000002"));
}

TEST_F(CheckpointStoreTest, CommitsCheckpointWhenLatestCannotBeReplaced) {
  fs::create_directories(directory_ + "/latest/in the way");
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
  test::write_whole(path_of(1), "precious");
  EXPECT_EQ(store_.commit(TrainerState(1).content()).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(*read_file(path_of(1), 100), "precious");
}

TEST_F(CheckpointStoreTest, RejectsCommitBeforeFirstWriteOnFullDisk) {
  commit(1);
  const size_t before = files_.operations().size();
  files_.set_free_bytes(1000);
  const auto refused = store_.commit(TrainerState(2).content());
  EXPECT_EQ(refused.status().code(), StatusCode::kNoSpace);
  EXPECT_THAT(refused.status().message(), HasSubstr(directory_));
  const auto operations = files_.operations();
  for (size_t i = before; i < operations.size(); ++i) {
    EXPECT_NE(operations[i].kind, test::Operation::Kind::kWrite);
    EXPECT_NE(operations[i].kind, test::Operation::Kind::kMakeDirectory);
  }
}

TEST_F(CheckpointStoreTest, LeavesNoFilesWhenTensorsAreInvalid) {
  TrainerState state(1);
  CheckpointContent content = state.content();
  content.state.push_back(content.state[0]);  // a name twice
  EXPECT_EQ(store_.commit(content).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(names_in(directory_).empty());
  commit(1);
  EXPECT_TRUE(is_complete(path_of(1), 1));
}

TEST_F(CheckpointStoreTest, ListsOnlyCanonicalNamesOldestFirst) {
  EXPECT_TRUE(steps_of(store_).empty());  // no directory yet
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
  damage(3);
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
  for (const uint64_t step : {1, 2}) commit(step), damage(step);
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
  commit(1), commit(2), damage(2);
  const auto opened = store_.open_newest(nullptr);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->manifest().step, 1U);
}

TEST_F(CheckpointStoreTest, RemovesOnlyOwnTemporaryDirectoriesOnCleanup) {
  EXPECT_TRUE(store_.clean_up().ok());  // no directory yet
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
  EXPECT_THAT(refused.status().message(), HasSubstr("moved or removed; bring it back"));
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
              HasSubstr("is another directory than this run began with"));
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

// A reader that always opens the newest, beside a writer that keeps one only.
TEST_F(CheckpointStoreTest, OpensOnlyCompleteCheckpointsDuringCommitAndDeletion) {
  commit(1);
  std::atomic<bool> done = false;
  int opened_count = 0;
  std::thread reader([&] {
    CheckpointStore store(directory_, default_file_system());
    while (!done) {
      const auto opened = store.open_newest([](const CheckpointEntry& entry, const Status& why) {
        ADD_FAILURE() << entry.path << ": " << why.to_string();
      });
      if (opened.ok()) ++opened_count;
      if (!opened.ok()) {  // all that were listed are retired since
        EXPECT_EQ(opened.status().code(), StatusCode::kNotFound) << opened.status().to_string();
      }
    }
  });
  for (uint64_t step = 2; step < 60; ++step) {
    commit(step);
    EXPECT_TRUE(store_.delete_checkpoints(std::vector<uint64_t>{step - 1}).ok());
  }
  done = true;
  reader.join();
  EXPECT_GT(opened_count, 0);
}

}  // namespace
}  // namespace stoker::checkpoint
