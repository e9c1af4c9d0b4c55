#include "shared/data/stream/stream_source.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/shared/data/stream/stream_fixture.h"
#include "tests/support/packed_bytes.h"
#include "tests/support/temporary_directory.h"

namespace stoker::data::stream {
namespace {

using test::write_whole;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = StreamSource::Kind;

class StreamSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"shard-02.jsonl", "shard-00.jsonl", "shard-01.jsonl"})
      write_whole(folder_ / name, std::string(name) + "\n");
  }
  StreamSource of(const std::string& source, const std::string& folder = "") const {
    auto found = StreamSource::of(source, folder);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return *std::move(found);
  }
  void expect_error(const std::string& source, StatusCode code, const std::string& what) const {
    const auto found = StreamSource::of(source, "");
    EXPECT_EQ(found.status().code(), code) << found.status().to_string();
    EXPECT_THAT(found.status().message(), HasSubstr(what));
  }

  const test::TemporaryDirectory folder_;
};

TEST_F(StreamSourceTest, ListsShardsInOrderOfNames) {
  const StreamSource source = of(folder_ / "shard-*.jsonl");
  EXPECT_EQ(source.kind(), Kind::kShards);
  EXPECT_THAT(source.names(), ElementsAre(folder_ / "shard-00.jsonl", folder_ / "shard-01.jsonl",
                                          folder_ / "shard-02.jsonl"));
}

TEST_F(StreamSourceTest, ListsRangesAndFoldersBelowWildcard) {
  EXPECT_EQ(of(folder_ / "shard-{00..02}.jsonl").names().size(), 3u);
  std::filesystem::create_directory(folder_ / "sub");
  write_whole(folder_ / "sub/a.jsonl", "{}\n");
  EXPECT_THAT(of(folder_ / "**/a.jsonl").names(), ElementsAre(folder_ / "sub/a.jsonl"));
  EXPECT_THAT(of(folder_ / "s?b/a.jsonl").names(), ElementsAre(folder_ / "sub/a.jsonl"));
}

TEST_F(StreamSourceTest, ReportsMissingShards) {
  expect_error(folder_ / "shard-{00..03}.jsonl", StatusCode::kNotFound,
               "has no 'shard-03.jsonl'; 1 of the 4 files that the range names are missing");
  expect_error(folder_ / "*.tar", StatusCode::kNotFound, "*.tar: no file matches");
  expect_error(folder_ / "none", StatusCode::kNotFound, "none");
}

TEST_F(StreamSourceTest, OpensCompressedShards) {
  write_whole(folder_ / "a.jsonl.gz", test::gzip("{}\n"));
  write_whole(folder_ / "b.jsonl.zst", test::zstd("{}\n"));
  const StreamSource source = of(folder_ / "?.jsonl.*");
  ASSERT_EQ(source.names().size(), 2u);
  for (const std::string& name : source.names()) {
    const auto input = source.open(name);
    ASSERT_TRUE(input.ok()) << input.status().to_string();
    EXPECT_EQ(testing::read_rest(**input).bytes, "{}\n");
  }
}

TEST_F(StreamSourceTest, DistinguishesFilesByType) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(of(folder_ / "fifo").kind(), Kind::kFifo);
  EXPECT_EQ(of(folder_ / "shard-00.jsonl").kind(), Kind::kShards);
  EXPECT_EQ(of(folder_ / "shard-0[0].jsonl").kind(), Kind::kShards);
  EXPECT_EQ(of("stdin").kind(), Kind::kStdin);
  EXPECT_EQ(of("external").kind(), Kind::kExternal);
  EXPECT_EQ(of("spool", folder_.path()).kind(), Kind::kSpool);
}

TEST_F(StreamSourceTest, OpensDescriptorOfStdinAndFifoOnly) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  const StreamSource fifo = of(folder_ / "fifo");
  EXPECT_TRUE(fifo.has_descriptor());
  const auto opened = fifo.open_descriptor();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->name, folder_ / "fifo");
  EXPECT_TRUE(of("stdin").has_descriptor());
  EXPECT_FALSE(of(folder_ / "shard-00.jsonl").has_descriptor());
  EXPECT_FALSE(of(folder_ / "*.jsonl").has_descriptor());
  EXPECT_FALSE(of("external").has_descriptor());
}

// The alternatives are longer than the name of a file can be.
TEST_F(StreamSourceTest, AcceptsLongPattern) {
  std::string names = "shard-00";
  for (int i = 0; i < 40; ++i) names += ",other-" + std::to_string(i);
  EXPECT_THAT(of(folder_ / ("{" + names + "}.jsonl")).names(),
              ElementsAre(folder_ / "shard-00.jsonl"));
}

TEST_F(StreamSourceTest, TakesExistingNameWithWildcardLiterally) {
  write_whole(folder_ / "a[1].jsonl", "{}\n");
  EXPECT_THAT(of(folder_ / "a[1].jsonl").names(), ElementsAre(folder_ / "a[1].jsonl"));
}

TEST_F(StreamSourceTest, RejectsFoldersSocketsAndDevices) {
  expect_error(folder_.path(), StatusCode::kInvalidArgument, "use source: spool");
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = folder_ / "socket";
  ASSERT_LT(path.size(), sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  expect_error(path, StatusCode::kInvalidArgument, "use source: external");
  expect_error("/dev/null", StatusCode::kInvalidArgument, "is a device");
  expect_error("spool", StatusCode::kInvalidArgument, "requires the path of a folder");
  expect_error("", StatusCode::kInvalidArgument, "must name a source");
}

}  // namespace
}  // namespace stoker::data::stream
