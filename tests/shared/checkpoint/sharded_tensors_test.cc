#include "shared/checkpoint/sharded_tensors.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/checkpoint/checkpoint_fixture.h"

namespace stoker::checkpoint {
namespace {

using ::testing::HasSubstr;

class ShardedTensorsTest : public ::testing::Test {
 protected:
  using Files = std::vector<std::unique_ptr<SafetensorsFile>>;

  std::unique_ptr<SafetensorsFile> file(const std::vector<OwnedTensor>& tensors,
                                        const std::string& ranges) {
    const std::string name = std::to_string(++files_) + ".safetensors";
    std::map<std::string, std::string> metadata;
    if (!ranges.empty()) metadata[kRangesKey] = ranges;
    EXPECT_TRUE(
        write_safetensors(default_file_system(), scratch_.path(), name, views_of(tensors), metadata)
            .ok());
    auto opened = SafetensorsFile::open(scratch_ / name);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return std::move(*opened);
  }
  // Elements begin … end of the tensor.
  static OwnedTensor range_of(const OwnedTensor& complete, size_t begin, size_t end) {
    const size_t element = dtype_bytes(complete.spec.dtype);
    const auto at = [&](size_t index) {
      return complete.bytes.begin() + static_cast<std::ptrdiff_t>(index * element);
    };
    return {.spec = {complete.spec.name, complete.spec.dtype, {static_cast<int64_t>(end - begin)}},
            .bytes = {at(begin), at(end)}};
  }
  template <typename... File>
  static Result<std::unique_ptr<ShardedTensors>> open(File... file) {
    Files files;
    (files.push_back(std::move(file)), ...);
    return ShardedTensors::create(std::move(files));
  }
  void expect_corrupt(const Result<std::unique_ptr<ShardedTensors>>& opened,
                      const std::string& what) {
    EXPECT_EQ(opened.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(opened.status().message(), HasSubstr(what));
    EXPECT_THAT(opened.status().message(), HasSubstr(scratch_.path()));
  }

  test::TemporaryDirectory scratch_;
  const OwnedTensor a_ = make_tensor("a", DType::kF32, {3, 5}, 1);
  const OwnedTensor b_ = make_tensor("b", DType::kF32, {4}, 2);
  const OwnedTensor step_ = make_tensor("step", DType::kF32, {}, 3);
  int files_ = 0;
};

TEST_F(ShardedTensorsTest, ReadsTensorsThatSeveralFilesHaveRangesOf) {
  const auto opened = open(file({range_of(a_, 0, 7), step_}, format_ranges({{"a", {{3, 5}, 0}}})),
                           file({range_of(a_, 7, 8), step_}, R"({"a":[7,[3,5]]})"),
                           file({range_of(a_, 8, 15), b_}, R"({"a":[8,[3,5]]})"));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const ShardedTensors& tensors = **opened;
  ASSERT_EQ(tensors.tensors().size(), 3u);
  EXPECT_EQ(tensors.tensors()[0], a_.spec);
  EXPECT_EQ(*tensors.find("step"), step_.spec);
  EXPECT_EQ(tensors.find("c"), nullptr);
  for (const OwnedTensor* const each : {&a_, &b_, &step_}) {
    std::vector<std::byte> bytes(each->bytes.size());
    ASSERT_TRUE(tensors.read(each->spec.name, bytes).ok());
    EXPECT_EQ(bytes, each->bytes) << each->spec.name;
  }
  // All ranges of bytes, which can begin and end in any file.
  for (size_t begin = 0; begin <= a_.bytes.size(); ++begin)
    for (size_t end = begin; end <= a_.bytes.size(); ++end) {
      std::vector<std::byte> bytes(end - begin);
      ASSERT_TRUE(tensors.read_part("a", begin, bytes).ok());
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(),
                             a_.bytes.begin() + static_cast<std::ptrdiff_t>(begin)));
    }
  std::vector<std::byte> too_many(a_.bytes.size() + 1);
  EXPECT_EQ(tensors.read("a", too_many).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tensors.read_part("a", 1, too_many).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tensors.read("c", too_many).code(), StatusCode::kNotFound);
}

// Written by any number of ranks, read by any other number: all elements are there, once. 300 sets of files, each read
// 340 times.
TEST_F(ShardedTensorsTest, ReadsRandomRangesOfRandomCuts) {
  std::mt19937_64 random(18);
  const auto below = [&random](size_t end) {
    return std::uniform_int_distribution<size_t>(0, end)(random);
  };
  for (int repetition = 0; repetition < 300; ++repetition) {
    SCOPED_TRACE(repetition);
    const OwnedTensor complete =
        make_tensor("a", DType::kF32, {1 + static_cast<int64_t>(below(40)), 3}, 1);
    const size_t elements = complete.bytes.size() / 4;
    std::vector<size_t> cuts{0, elements};
    for (size_t writers = 1 + below(7); writers > 1; --writers) cuts.push_back(below(elements));
    std::ranges::sort(cuts);
    Files files;
    for (size_t i = 1; i < cuts.size(); ++i) {
      const bool is_empty = cuts[i - 1] == cuts[i];  // a rank without a part of the tensor
      files.push_back(
          is_empty ? file({b_}, "")
                   : file({range_of(complete, cuts[i - 1], cuts[i]), b_},
                          format_ranges({{"a",
                                          {{complete.spec.shape.begin(), complete.spec.shape.end()},
                                           cuts[i - 1]}}})));
    }
    const auto opened = ShardedTensors::create(std::move(files));
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    for (int reading = 0; reading < 340; ++reading) {
      std::vector<size_t> ends{0, elements};
      for (size_t readers = 1 + below(7); readers > 1; --readers) ends.push_back(below(elements));
      std::ranges::sort(ends);
      std::vector<std::byte> read(complete.bytes.size());
      for (size_t i = 1; i < ends.size(); ++i)
        ASSERT_TRUE(
            (*opened)
                ->read_part("a", 4 * ends[i - 1],
                            std::span(read).subspan(4 * ends[i - 1], 4 * (ends[i] - ends[i - 1])))
                .ok());
      ASSERT_EQ(read, complete.bytes);
    }
  }
}

TEST_F(ShardedTensorsTest, ReadsOneFileWithoutRanges) {
  const auto opened = open(file({a_, b_}, ""));
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ((*opened)->tensors().size(), 2u);
}

TEST_F(ShardedTensorsTest, RejectsRangesThatDoNotFit) {
  const std::string first = R"({"a":[0,[3,5]]})";
  expect_corrupt(open(file({range_of(a_, 0, 7)}, first)),
                 "tensor a: its last range ends at byte 28 of 60");
  expect_corrupt(
      open(file({range_of(a_, 0, 7)}, first), file({range_of(a_, 8, 15)}, R"({"a":[8,[3,5]]})")),
      "tensor a: its range begins at byte 32, those before end at byte 28");
  expect_corrupt(
      open(file({range_of(a_, 0, 7)}, first), file({range_of(a_, 6, 15)}, R"({"a":[6,[3,5]]})")),
      "tensor a: its range begins at byte 24, those before end at byte 28");
  expect_corrupt(
      open(file({range_of(a_, 0, 7)}, first), file({range_of(a_, 7, 15)}, R"({"a":[7,[5,3]]})")),
      "another file a F32 [3, 5]");
  expect_corrupt(open(file({range_of(a_, 0, 7)}, R"({"a":[9,[3,5]]})")),
                 "tensor a: 7 elements from 9 on are no range of a tensor of its shape");
  expect_corrupt(open(file({a_}, first)), "are no range of a tensor of its shape");
  expect_corrupt(open(file({range_of(a_, 0, 7)}, R"({"a":[0,[3,-5]]})")), "are no range");
  expect_corrupt(open(file({range_of(a_, 0, 7)}, R"({"a":[0,[9007199254740991,4096]]})")),
                 "are no range");
  expect_corrupt(open(file({b_}, first)), "ranges: there is no tensor a");
  for (const char* const ranges : {"{", "[]", R"({"a":0})", R"({"a":[0]})", R"({"a":[-1,[3]]})"})
    expect_corrupt(open(file({range_of(a_, 0, 7)}, ranges)), "ranges: not ");
}

// ---- Checkpoints with an optimizer state of several files

// Writes the parts of other processes, or what a fault makes of them.
class FakeShards final : public OtherShards {
 public:
  FakeShards(FileSystem& files, std::string store, std::vector<CheckpointContent> parts)
      : files_(files), store_(std::move(store)), parts_(std::move(parts)) {}
  Status begin(const std::string& directory) override {
    directory_ = join_path(store_, directory);
    return {};
  }
  Result<std::vector<WrittenFile>> wait() override {
    std::vector<WrittenFile> files;
    for (size_t i = 0; i < parts_.size(); ++i) {
      STOKER_ASSIGN_OR_RETURN(
          auto file, write_optimizer_shard(files_, directory_, parts_[i], static_cast<int>(i) + 1));
      files.push_back(std::move(file));
    }
    if (after_write) STOKER_RETURN_IF_ERROR(after_write(join_path(directory_, files.back().name)));
    return files;
  }
  std::function<Status(const std::string& path)> after_write;

 private:
  FileSystem& files_;
  const std::string store_;
  const std::vector<CheckpointContent> parts_;
  std::string directory_;
};

class ShardedCheckpointTest : public StoreFixture {
 protected:
  ShardedCheckpointTest() : state_(7) {
    content_ = state_.content();
    content_.optim = views_of(first_);
    content_.num_shards = 2;
    content_.optim_bytes = 40;
    content_.ranges = {{"exp_avg.w", {{10}, 0}}};
    others_ = std::make_unique<FakeShards>(files_, directory_, std::vector{part_of_other()});
    content_.maybe_others = others_.get();
  }
  CheckpointContent part_of_other() const {
    CheckpointContent other;
    other.optim = views_of(second_);
    other.num_shards = 2;
    other.ranges = {{"exp_avg.w", {{10}, 6}}};
    return other;
  }
  std::string second_file() const { return path_of(7) + "/optimizer-00002-of-00002.safetensors"; }
  void expect_nothing_left(const Status& error, const std::string& what) {
    EXPECT_THAT(error.message(), HasSubstr(what));
    EXPECT_THAT(names_in(directory_), ::testing::IsEmpty());
  }

  const TrainerState state_;
  const std::vector<OwnedTensor> first_{make_tensor("exp_avg.w", DType::kF32, {6}, 1)};
  const std::vector<OwnedTensor> second_{make_tensor("exp_avg.w", DType::kF32, {4}, 2)};
  CheckpointContent content_;
  std::unique_ptr<FakeShards> others_;
};

TEST_F(ShardedCheckpointTest, CommitsWhenAllPartsAreWritten) {
  const auto committed = store_.commit(content_);
  ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  EXPECT_EQ(committed->optimizer_shards, 2);
  EXPECT_EQ(committed->format, kShardedFormat);
  const auto opened = CheckpointStore::open_verified(path_of(7));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->manifest(), *committed);
  const auto optimizer = opened->open_optimizer();
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  std::vector<std::byte> bytes(40);
  ASSERT_TRUE((*optimizer)->read("exp_avg.w", bytes).ok());
  EXPECT_TRUE(std::ranges::equal(std::span(bytes).first(24), first_[0].bytes));
  EXPECT_TRUE(std::ranges::equal(std::span(bytes).subspan(24), second_[0].bytes));
  EXPECT_EQ(opened->open_tensors("optimizer.safetensors").status().code(), StatusCode::kNotFound);
  // No attempt has left its directory.
  for (const std::string& name : names_in(directory_))
    EXPECT_FALSE(name.starts_with(".tmp-")) << name;
}

TEST_F(ShardedCheckpointTest, CommitsNothingUnlessAllPartsAreAsReported) {
  others_->after_write = [](const std::string&) {
    return Status(StatusCode::kPeerLost, "rank 1 exited");
  };
  expect_nothing_left(store_.commit(content_).status(), "rank 1 exited");
  others_->after_write = [](const std::string& path) {
    std::filesystem::remove(path);
    return Status();
  };
  expect_nothing_left(store_.commit(content_).status(), "optimizer-00002-of-00002.safetensors");
  others_->after_write = [](const std::string& path) {
    std::filesystem::resize_file(path, 50);
    return Status();
  };
  expect_nothing_left(store_.commit(content_).status(), ": has 50 bytes, ");
  others_->after_write = [](const std::string& path) {
    std::string text = *read_file(path, 1 << 20);
    text.back() = static_cast<char>(text.back() ^ 1);
    std::ofstream(path) << text;
    return Status();
  };
  expect_nothing_left(store_.commit(content_).status(), ", written was ");
  others_->after_write = nullptr;
  EXPECT_TRUE(store_.commit(content_).ok());
}

TEST_F(ShardedCheckpointTest, RemovesLeftoversOfKilledProcesses) {
  ASSERT_TRUE(store_.commit(content_).ok());
  const std::string left = directory_ + "/.tmp-step-000000006-0123456789abcdef";
  for (const bool is_start : {true, false}) {
    std::filesystem::create_directory(left);
    std::ofstream(left + "/optimizer-00002-of-00002.safetensors") << "part";
    content_.manifest.step = is_start ? 7 : 8;
    ASSERT_TRUE(is_start ? store_.clean_up().ok() : store_.commit(content_).ok());
    EXPECT_FALSE(std::filesystem::exists(left));
  }
}

// ---- Faults at each operation of the processes that write

class ShardedFaultTest : public ShardedCheckpointTest {
 protected:
  // A directory with checkpoint 7, and a disk that can fail during the commit of checkpoint 8.
  struct Attempt {
    explicit Attempt(const ShardedFaultTest& test)
        : content(test.content_), others(files, store.directory(), {test.part_of_other()}) {
      content.maybe_others = &others;
      EXPECT_TRUE(store.commit(content).ok());
      content.manifest.step = 8;
      before = files.operations().size();
    }

    test::TemporaryDirectory scratch;
    test::FaultyFiles files{scratch.path()};
    CheckpointStore store{scratch / "checkpoints", files};
    CheckpointContent content;
    FakeShards others;
    uint64_t before = 0;  // operations
  };

  uint64_t count_operations() const {
    Attempt attempt(*this);
    EXPECT_TRUE(attempt.store.commit(attempt.content).ok());
    return attempt.files.operations().size() - attempt.before;
  }
  // What a next start finds: complete checkpoints, and nothing else after it has cleaned up. Returns their steps.
  std::vector<uint64_t> expect_complete(const std::string& directory) const {
    test::TemporaryDirectory other;
    test::FaultyFiles files(other.path());
    CheckpointStore store(directory, files);
    EXPECT_TRUE(store.clean_up().ok());
    const auto steps = steps_of(store);
    for (const std::string& name : names_in(directory))
      EXPECT_TRUE(name == "latest" || CheckpointStore::parse_checkpoint_name(name)) << name;
    for (const uint64_t step : steps) {
      const auto opened = CheckpointStore::open_verified(
          join_path(directory, CheckpointStore::checkpoint_name(step)));
      EXPECT_TRUE(opened.ok()) << opened.status().to_string();
      if (!opened.ok()) continue;
      const auto optimizer = opened->open_optimizer();
      std::vector<std::byte> bytes(40);
      EXPECT_TRUE(optimizer.ok() && (*optimizer)->read("exp_avg.w", bytes).ok());
      EXPECT_TRUE(std::ranges::equal(std::span(bytes).first(24), first_[0].bytes));
      EXPECT_TRUE(std::ranges::equal(std::span(bytes).subspan(24), second_[0].bytes));
    }
    return steps;
  }
};

using test::Fault;

TEST_F(ShardedFaultTest, CommitsAllPartsOrNoneIfAnyOperationFails) {
  const uint64_t count = count_operations();
  ASSERT_GE(count, 18u);  // six files with open, write and sync
  for (const bool is_kill : {false, true})
    for (uint64_t at = 1; at <= count; ++at)
      for (const auto extent :
           {Fault::Extent::kNothing, Fault::Extent::kHalf, Fault::Extent::kAll}) {
        Attempt attempt(*this);
        attempt.files.fail_at(attempt.before + at, {EIO, extent, is_kill});
        const bool is_committed = attempt.store.commit(attempt.content).ok();
        SCOPED_TRACE((is_kill ? "kill " : "error ") + std::to_string(at) + ": " +
                     to_string(attempt.files.operations()[attempt.before + at - 1]));
        EXPECT_FALSE(is_committed);
        const std::string directory = attempt.store.directory();
        if (is_kill) {  // before or after the rename
          EXPECT_EQ(expect_complete(directory).front(), 7u);
          continue;
        }
        EXPECT_EQ(steps_of(attempt.store), (std::vector<uint64_t>{7}));
        EXPECT_TRUE(attempt.store.commit(attempt.content).ok()) << "the disk has recovered";
        EXPECT_EQ(expect_complete(directory), (std::vector<uint64_t>{7, 8}));
      }
}

TEST_F(ShardedFaultTest, CommitsAllPartsOrNoneIfPowerIsCutAfterAnyOperation) {
  Attempt attempt(*this);
  ASSERT_TRUE(attempt.store.commit(attempt.content).ok());
  const uint64_t end = attempt.files.operations().size();
  for (uint64_t at = attempt.before; at <= end; ++at)
    for (const auto& [survival, seed] :
         std::vector<std::pair<test::Survival, uint64_t>>{{test::Survival::kNothing, 0},
                                                          {test::Survival::kNamesOnly, 0},
                                                          {test::Survival::kEverything, 0},
                                                          {test::Survival::kSome, 1},
                                                          {test::Survival::kSome, 2}}) {
      SCOPED_TRACE("after " + to_string(attempt.files.operations()[at - 1]) + ", survival " +
                   std::to_string(static_cast<int>(survival)) + " seed " + std::to_string(seed));
      test::TemporaryDirectory disk;
      attempt.files.simulate_power_loss(at, survival, seed, disk / "root");
      const auto steps = expect_complete(disk / "root/checkpoints");
      ASSERT_FALSE(steps.empty());
      EXPECT_EQ(steps.front(), 7u);
      if (at == end) {
        EXPECT_EQ(steps.size(), 2u);
      }
    }
}

// As while a process of an earlier attempt still writes to it.
TEST_F(ShardedCheckpointTest, CommitsDespiteLeftoverThatCannotBeRemoved) {
  ASSERT_TRUE(store_.commit(content_).ok());
  const std::string left = directory_ + "/.tmp-step-000000006-0123456789abcdef";
  std::filesystem::create_directory(left);
  content_.manifest.step = 8;
  const uint64_t before = files_.operations().size();
  files_.fail_at(before + 3, {.error = ENOTEMPTY});
  const auto committed = store_.commit(content_);
  ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  EXPECT_EQ(files_.operations()[before + 2].kind, test::Operation::Kind::kRemoveTree);
  EXPECT_TRUE(std::filesystem::exists(left));
}

TEST_F(ShardedCheckpointTest, ReportsMissingTruncatedAndCorruptPart) {
  ASSERT_TRUE(store_.commit(content_).ok());
  const std::string whole = *read_file(second_file(), 1 << 20);
  const auto reason = [&] {
    const auto opened = CheckpointStore::open_verified(path_of(7));
    EXPECT_EQ(opened.status().code(), StatusCode::kCorrupt);
    return opened.status().message();
  };
  std::string flipped = whole;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  test::write_whole(second_file(), flipped);
  EXPECT_THAT(reason(), HasSubstr("optimizer-00002-of-00002.safetensors: SHA-256 is "));
  test::write_whole(second_file(), whole.substr(1));
  EXPECT_THAT(reason(), HasSubstr("optimizer-00002-of-00002.safetensors: has "));
  std::filesystem::remove(second_file());
  EXPECT_THAT(reason(), HasSubstr("optimizer-00002-of-00002.safetensors: missing"));
}

// Of the process, while the object exists. Files that are open stay open.
class OpenFileLimit {
 public:
  explicit OpenFileLimit(rlim_t limit) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit lower = before_;
    lower.rlim_cur = limit;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  }
  ~OpenFileLimit() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  OpenFileLimit(const OpenFileLimit&) = delete;
  OpenFileLimit& operator=(const OpenFileLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_F(ShardedCheckpointTest, HasMoreShardsThanProcessMayOpenFiles) {
  constexpr int kShards = 400;
  const OwnedTensor complete = make_tensor("exp_avg.w", DType::kF32, {kShards}, 1);
  std::vector<std::vector<OwnedTensor>> elements;
  std::vector<CheckpointContent> parts(kShards);
  for (int i = 0; i < kShards; ++i) {
    const auto begin = complete.bytes.begin() + 4 * i;
    elements.push_back({{.spec = {"exp_avg.w", DType::kF32, {1}}, .bytes = {begin, begin + 4}}});
    auto& part = parts[static_cast<size_t>(i)];
    part.optim = views_of(elements.back());
    part.num_shards = kShards;
    part.ranges = {{"exp_avg.w", {{kShards}, static_cast<uint64_t>(i)}}};
  }
  content_.optim = parts[0].optim;
  content_.num_shards = kShards;
  content_.ranges = parts[0].ranges;
  parts.erase(parts.begin());
  others_ = std::make_unique<FakeShards>(files_, directory_, parts);
  content_.maybe_others = others_.get();

  const OpenFileLimit limit(64);
  const auto committed = store_.commit(content_);
  ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  const auto opened = CheckpointStore::open_verified(path_of(7));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const auto optimizer = opened->open_optimizer();
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  EXPECT_EQ((*optimizer)->num_files(), static_cast<size_t>(kShards));
  std::vector<std::byte> bytes(complete.bytes.size());
  ASSERT_TRUE((*optimizer)->read("exp_avg.w", bytes).ok());
  EXPECT_EQ(bytes, complete.bytes);
}

TEST_F(ShardedCheckpointTest, ReportsShardThatIsReplacedAfterItWasVerified) {
  ASSERT_TRUE(store_.commit(content_).ok());
  const auto opened = CheckpointStore::open_verified(path_of(7));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const auto optimizer = opened->open_optimizer();
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  std::vector<std::byte> bytes(40);
  const std::string copy = second_file() + ".copy";
  std::filesystem::copy_file(second_file(), copy);
  std::filesystem::rename(copy, second_file());
  EXPECT_TRUE((*optimizer)->read("exp_avg.w", bytes).ok()) << "another inode with the same bytes";

  // Another byte, with the time and size of before.
  const auto time = std::filesystem::last_write_time(second_file());
  std::filesystem::permissions(second_file(), std::filesystem::perms::owner_all);
  std::fstream changed(second_file(), std::ios::in | std::ios::out | std::ios::binary);
  changed.seekp(-1, std::ios::end).put('\x55');
  changed.close();
  ASSERT_TRUE(changed.good());
  std::filesystem::last_write_time(second_file(), time);
  for (const Status& status :
       {(*optimizer)->read("exp_avg.w", bytes), opened->open_optimizer().status()}) {
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("optimizer-00002-of-00002.safetensors: was replaced or "
                                            "changed after it was verified"));
  }
  std::filesystem::remove(second_file());
  const Status deleted = (*optimizer)->read("exp_avg.w", bytes);
  EXPECT_EQ(deleted.code(), StatusCode::kNotFound);
  EXPECT_THAT(deleted.message(), HasSubstr("was deleted after it was verified"));
}

TEST_F(ShardedCheckpointTest, DeletesAllParts) {
  ASSERT_TRUE(store_.commit(content_).ok());
  content_.manifest.step = 8;
  ASSERT_TRUE(store_.commit(content_).ok());
  const auto deleted = store_.delete_checkpoints(std::vector<uint64_t>{7});
  ASSERT_TRUE(deleted.ok());
  EXPECT_THAT(names_in(directory_), ::testing::UnorderedElementsAre("latest", "step-000000008"));
}

TEST_F(ShardedCheckpointTest, CountsSpaceOfAllParts) {
  CheckpointContent alone = content_;
  alone.num_shards = 0;
  const std::vector<OwnedTensor> large{make_tensor("exp_avg.w", DType::kF32, {1 << 20}, 1)};
  content_.optim = alone.optim = views_of(large);
  files_.set_free_bytes(uint64_t{8} << 20);
  ASSERT_TRUE(store_.commit(alone).ok());
  // Not that of the own part times the number of parts: they can have different sizes.
  content_.optim_bytes = uint64_t{6} << 20;
  EXPECT_TRUE(store_.check_free_space(content_).ok());
  content_.optim_bytes = uint64_t{8} << 20;
  EXPECT_EQ(store_.check_free_space(content_).code(), StatusCode::kNoSpace);
}

}  // namespace
}  // namespace stoker::checkpoint
