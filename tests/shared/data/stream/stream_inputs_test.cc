#include "shared/data/stream/stream_inputs.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/stream/stream_fixture.h"

namespace stoker::data::stream {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StreamInputsTest : public data::testing::FolderFixture {
 protected:
  // The names without the folder, at most `limit`.
  static std::vector<std::string> names_of(StreamInputs& inputs, size_t limit = 100) {
    std::vector<std::string> names;
    while (names.size() < limit) {
      const auto item = inputs.next({});
      EXPECT_TRUE(item.ok()) << item.status().to_string();
      if (!item || !*item) break;
      names.push_back(std::filesystem::path((*item)->name).filename());
    }
    return names;
  }
  StreamSource source_of(const std::string& pattern) const {
    const auto source = StreamSource::of(path(pattern), "");
    EXPECT_TRUE(source.ok()) << source.status().to_string();
    return *source;
  }
};

TEST_F(StreamInputsTest, RepeatsFilesForEpochs) {
  write("a", "1");
  write("b", "2");
  EXPECT_THAT(names_of(*make_file_inputs(source_of("*"), 2)), ElementsAre("a", "b", "a", "b"));
  const auto endless = make_file_inputs(source_of("*"), std::nullopt);
  EXPECT_THAT(names_of(*endless, 5), ElementsAre("a", "b", "a", "b", "a"));
  EXPECT_EQ(endless->traits().period, 2u);
}

TEST_F(StreamInputsTest, ContinuesFromNumber) {
  write("a", "1");
  write("b", "2");
  EXPECT_THAT(names_of(*make_file_inputs(source_of("*"), 2, 1)), ElementsAre("b", "a", "b"));
  EXPECT_THAT(names_of(*make_file_inputs(source_of("*"), 2, 4)), IsEmpty());
}

TEST_F(StreamInputsTest, RemembersFilesOfSpoolFolder) {
  write("spool/a", "1");
  write("spool/b", "2");
  write("spool/.end", "");
  auto inputs = make_spool_inputs(path("spool"));
  ASSERT_TRUE(inputs.ok()) << inputs.status().to_string();
  const auto first = (*inputs)->next({});
  ASSERT_TRUE(first.ok() && *first) << first.status().to_string();
  EXPECT_NE((*first)->identity, 0u);
  EXPECT_TRUE((*inputs)->must_remember(hash_of_name((*first)->name)));
  EXPECT_FALSE((*inputs)->must_remember(hash_of_name(path("spool/b"))));
  EXPECT_GT((*inputs)->polls(), 0u);
  auto resumed = make_spool_inputs(path("spool"), {{hash_of_name("a"), (*first)->identity}});
  ASSERT_TRUE(resumed.ok()) << resumed.status().to_string();
  EXPECT_THAT(names_of(**resumed), ElementsAre("b"));
}

TEST_F(StreamInputsTest, OpensArchivedFileOfSpoolFolder) {
  write("spool/done/a", "text");
  auto inputs = make_spool_inputs(path("spool"));
  ASSERT_TRUE(inputs.ok()) << inputs.status().to_string();
  const auto input = (*inputs)->open(path("spool/a"), {});
  ASSERT_TRUE(input.ok()) << input.status().to_string();
  EXPECT_EQ(testing::read_rest(**input).bytes, "text");
  const Status missing = (*inputs)->open(path("spool/b"), {}).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(path("spool/b")));
}

TEST_F(StreamInputsTest, OpensDescriptorOnce) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::write(ends[1], "text", 4), 4);
  ::close(ends[1]);
  const auto inputs = make_descriptor_inputs({.fd = UniqueFd(ends[0]), .name = "pipe"});
  EXPECT_THAT(names_of(*inputs), ElementsAre("pipe"));
  EXPECT_FALSE(inputs->traits().can_be_read_again);
  const auto input = inputs->open("pipe", {});
  ASSERT_TRUE(input.ok()) << input.status().to_string();
  EXPECT_EQ(testing::read_rest(**input).bytes, "text");
  EXPECT_EQ(inputs->open("pipe", {}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(StreamInputsTest, ReadsDescriptorAgainFromHistory) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::write(ends[1], "more", 4), 4);
  ::close(ends[1]);
  std::array<uint64_t, 17> memory{};
  const ByteHistory history(std::as_writable_bytes(std::span(memory)));
  const std::string before = "what was read";
  history.assign(100, std::as_bytes(std::span(before)), 100);
  const auto inputs = make_recorded_inputs({.fd = UniqueFd(ends[0]), .name = "pipe"}, history, 1);
  EXPECT_TRUE(inputs->traits().can_be_read_again);
  for (const char* const rest : {"was read"
                                 "more",
                                 "was read"
                                 "more"}) {
    const auto input = inputs->open("pipe", {.offset = 105});
    ASSERT_TRUE(input.ok()) << input.status().to_string();
    EXPECT_EQ(testing::read_rest(**input).bytes, rest);
  }
  EXPECT_EQ(history.range().end, 117u);
  const auto gone = inputs->open("pipe", {.offset = 99});
  ASSERT_TRUE(gone.ok()) << gone.status().to_string();
  EXPECT_EQ(testing::read_rest(**gone).status.code(), StatusCode::kInternal);
}

TEST_F(StreamInputsTest, ContinuesDescriptorThatStateNames) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ::close(ends[1]);
  const auto inputs = make_descriptor_inputs({.fd = UniqueFd(ends[0]), .name = "pipe"}, 1);
  EXPECT_THAT(names_of(*inputs), IsEmpty());
  EXPECT_TRUE(inputs->open("pipe", {}).ok());
}

}  // namespace
}  // namespace stoker::data::stream
