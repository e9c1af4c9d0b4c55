#include "shared/data/stream/byte_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/stream/stream_fixture.h"
#include "tests/support/packed_bytes.h"
#include "tests/support/temporary_directory.h"

namespace stoker::data::stream {
namespace {

using test::TemporaryDirectory;
using test::write_whole;
using testing::eventually;
using ::testing::HasSubstr;
using testing::read_rest;
using testing::read_some;

void append(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::app) << content;
}

void expect_corrupt(const Status& status, const std::string& what) {
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(what));
}

// Requests the stop before the read.
void expect_stopped(ByteInput& input) {
  std::stop_source stop;
  stop.request_stop();
  std::array<std::byte, 8> bytes;
  EXPECT_EQ(input.read(bytes, stop.get_token()).status().code(), StatusCode::kCancelled);
}

// ---- Pipes and sockets

struct Pipe {
  Pipe() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
    input = make_descriptor_input({.fd = UniqueFd(fds[0]), .name = "pipe"});
    writer = UniqueFd(fds[1]);
  }
  void write(const std::string& text) const {
    EXPECT_EQ(::write(writer.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::unique_ptr<ByteInput> input;
  UniqueFd writer;
};

TEST(DescriptorInputTest, ReturnsWhatIsAvailableThenEnd) {
  Pipe pipe;
  pipe.write("abc");
  EXPECT_EQ(read_some(*pipe.input), "abc");
  pipe.write("de");
  pipe.writer.reset();
  EXPECT_EQ(read_some(*pipe.input), "de");
  EXPECT_EQ(read_some(*pipe.input), "");
}

TEST(DescriptorInputTest, WaitsForProducerUntilStopped) {
  Pipe pipe;
  std::optional<Result<size_t>> got;
  std::jthread reader([&](const std::stop_token& stop) {
    std::array<std::byte, 8> bytes;
    got = pipe.input->read(bytes, stop);
  });
  EXPECT_TRUE(eventually([&] { return pipe.input->is_waiting(); }));
  reader.request_stop();
  reader.join();
  EXPECT_EQ(got->status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(pipe.input->is_waiting());
}

TEST(DescriptorInputTest, ContinuesAfterPauseOfProducer) {
  Pipe pipe;
  std::string text;
  std::jthread reader([&] { text = read_some(*pipe.input); });
  EXPECT_TRUE(eventually([&] { return pipe.input->is_waiting(); }));
  pipe.write("late");
  reader.join();
  EXPECT_EQ(text, "late");
}

TEST(DescriptorInputTest, WaitsForFirstWriterOfFifo) {
  const TemporaryDirectory folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  auto fifo = open_fifo(folder / "fifo");
  ASSERT_TRUE(fifo.ok()) << fifo.status().to_string();
  const auto input = make_descriptor_input(*std::move(fifo));
  EXPECT_EQ(input->name(), folder / "fifo");
  testing::ReadBytes read;
  std::jthread reader([&] { read = read_rest(*input); });
  EXPECT_TRUE(eventually([&] { return input->is_waiting(); }));
  append(folder / "fifo", "abc");
  reader.join();
  EXPECT_TRUE(read.status.ok()) << read.status.to_string();
  EXPECT_EQ(read.bytes, "abc");
}

TEST(DescriptorInputTest, StopsWhileBytesAreAvailable) {
  Pipe pipe;
  pipe.write("abc");
  expect_stopped(*pipe.input);
}

TEST(DescriptorInputTest, CannotBeReadAgain) {
  EXPECT_EQ(Pipe().input->identity(), 0u);
  EXPECT_TRUE(Pipe().input->check_identity(7, 0).ok());
}

TEST(DescriptorInputTest, ReportsMissingFifo) {
  EXPECT_EQ(open_fifo("/nowhere/fifo").status().code(), StatusCode::kNotFound);
}

TEST(ByteInputTest, SkipsAtMostToEnd) {
  testing::MemoryInput input("abcdef");
  EXPECT_EQ(*input.skip(4, {}), 4u);
  EXPECT_EQ(read_some(input), "ef");
  testing::MemoryInput shorter("abc");
  EXPECT_EQ(*shorter.skip(4, {}), 3u);
}

TEST(ByteInputTest, CountsReadsAndWaitsAsPolls) {
  Pipe pipe;
  pipe.write("abc");
  EXPECT_EQ(pipe.input->polls(), 0u);
  EXPECT_EQ(read_some(*pipe.input), "abc");
  EXPECT_EQ(pipe.input->polls(), 1u);
  std::jthread reader([&] { EXPECT_EQ(read_some(*pipe.input), "d"); });
  EXPECT_TRUE(eventually([&] { return pipe.input->polls() >= 4; }));  // of one read
  pipe.write("d");
}

// ---- Shards

TEST(ShardTest, ReadsFromPosition) {
  const TemporaryDirectory folder;
  write_whole(folder / "a", "abcdef");
  const auto input = open_shard(folder / "a");
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(*(*input)->skip(4, {}), 4u);
  EXPECT_EQ(read_rest(**input).bytes, "ef");
  EXPECT_EQ(*(*input)->skip(4, {}), 0u);
}

TEST(ShardTest, StopsWhileBytesAreAvailable) {
  const TemporaryDirectory folder;
  write_whole(folder / "a", "abc");
  write_whole(folder / "b.gz", test::gzip("abc"));
  expect_stopped(**open_shard(folder / "a"));
  expect_stopped(**open_shard(folder / "b.gz"));
}

class ShardIdentityTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ShardIdentityTest, IsSizeAndTimeButNotInode) {
  const TemporaryDirectory folder;
  const std::string path = folder / ("a" + GetParam());
  write_whole(path, "some bytes");
  const auto input = open_shard(path);
  ASSERT_TRUE(input.ok());
  const uint64_t identity = (*input)->identity();
  EXPECT_NE(identity, 0u);
  // As cp -a does.
  const auto time = std::filesystem::last_write_time(path);
  std::filesystem::copy_file(path, path + ".copy");
  std::filesystem::rename(path + ".copy", path);
  std::filesystem::last_write_time(path, time);
  EXPECT_TRUE((*open_shard(path))->check_identity(9, identity).ok());
  std::filesystem::last_write_time(path, time + std::chrono::seconds(1));
  expect_corrupt((*open_shard(path))->check_identity(9, identity),
                 path + ": is not what was read before");
  append(path, "x");
  std::filesystem::last_write_time(path, time);
  EXPECT_FALSE((*open_shard(path))->check_identity(9, identity).ok());
}

INSTANTIATE_TEST_SUITE_P(Formats, ShardIdentityTest, ::testing::Values("", ".gz", ".zst"),
                         [](const auto& extension) {
                           return extension.param.empty() ? "plain" : extension.param.substr(1);
                         });

TEST(ShardTest, ReportsTruncationWhileReading) {
  const TemporaryDirectory folder;
  write_whole(folder / "a", std::string(10000, 'x'));
  const auto input = open_shard(folder / "a");
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(read_some(**input).size(), 4096u);
  std::filesystem::resize_file(folder / "a", 5000);
  expect_corrupt(read_rest(**input).status, "a: was truncated at offset 5000");
}

TEST(ShardTest, ReportsFileThatGrowsWhileItIsRead) {
  const TemporaryDirectory folder;
  write_whole(folder / "a", "abc");
  const auto input = open_shard(folder / "a");
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(read_some(**input), "abc");
  append(folder / "a", "d");
  expect_corrupt(read_rest(**input).status, "changed while it was read");
}

TEST(ShardTest, RejectsMissingAndSpecialFiles) {
  const TemporaryDirectory folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(open_shard(folder / "fifo").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(open_shard(folder / "none").status().code(), StatusCode::kNotFound);
}

std::string text_of(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + i * i % 26);
  return text;
}

struct Packing {
  std::string extension;
  std::string (*pack)(const std::string&);
};
class PackedShardTest : public ::testing::TestWithParam<Packing> {
 protected:
  testing::ReadBytes read(const std::string& content, uint64_t from = 0) const {
    write_whole(path(), content);
    const auto input = open_shard(path());
    if (!input) return {.bytes = {}, .status = input.status()};
    const auto skipped = (*input)->skip(from, {});
    return skipped ? read_rest(**input, 777)
                   : testing::ReadBytes{.bytes = {}, .status = skipped.status()};
  }
  std::string path() const { return folder_ / ("a" + GetParam().extension); }
  static std::string pack(const std::string& content) { return GetParam().pack(content); }

  const TemporaryDirectory folder_;
};

TEST_P(PackedShardTest, DecompressesFromEveryPosition) {
  const std::string text = text_of(5000);
  for (const uint64_t from : {0u, 1u, 4999u, 5000u}) {
    const auto got = read(pack(text), from);
    EXPECT_TRUE(got.status.ok()) << got.status.to_string();
    EXPECT_EQ(got.bytes, text.substr(from));
  }
  EXPECT_EQ(read(pack(text), 5001).bytes, "");
}

TEST_P(PackedShardTest, CountsMemoryOfDecompression) {
  write_whole(path(), pack(text_of(5000)));
  const auto input = open_shard(path());
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(read_some(**input).size(), 4096u);
  EXPECT_GT((*input)->held_bytes(), 1u << 10);
  EXPECT_LT((*input)->held_bytes(), 4u << 20);
}

TEST_P(PackedShardTest, DecompressesSeveralMembers) {
  const std::string text = text_of(5000);
  EXPECT_EQ(read(pack(text) + pack("") + pack("more")).bytes, text + "more");
}

TEST_P(PackedShardTest, ReportsMemberThatEndsEarly) {
  const std::string packed = pack(text_of(5000));
  for (size_t length = 0; length < packed.size(); length += 1 + length / 8) {
    const auto got = read(packed.substr(0, length));
    expect_corrupt(got.status, "the packed data is truncated at offset " + std::to_string(length));
    EXPECT_TRUE(text_of(5000).starts_with(got.bytes));
  }
  const auto second = read(packed + packed.substr(0, packed.size() - 1));
  EXPECT_TRUE(second.bytes.starts_with(text_of(5000)));  // what could be decompressed is returned
  expect_corrupt(second.status, path() + ": the packed data is truncated");
}

TEST_P(PackedShardTest, ReportsCorruptBytes) {
  std::string packed = pack(text_of(5000));
  packed[packed.size() - 2] = static_cast<char>(packed[packed.size() - 2] ^ 1);  // of the checksum
  EXPECT_EQ(read(packed).status.code(), StatusCode::kCorrupt);
  expect_corrupt(read("not compressed").status, "corrupt (");
}

TEST_P(PackedShardTest, ReportsFileTruncatedWhileItIsRead) {
  std::string noise(600'000, '\0');  // cannot be compressed
  uint32_t state = 1;
  for (char& byte : noise) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  write_whole(path(), pack(noise));
  const auto input = open_shard(path());
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(read_some(**input).size(), 4096u);
  std::filesystem::resize_file(path(), 400'000);
  expect_corrupt(read_rest(**input).status, "was truncated at offset");
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedShardTest,
                         ::testing::Values(Packing{".gz", test::gzip}, Packing{".tgz", test::gzip},
                                           Packing{".zst", test::zstd},
                                           Packing{".tzst", test::zstd}),
                         [](const auto& packing) { return packing.param.extension.substr(1); });

// A zstd frame whose window has 2^log bytes, with one uncompressed block.
std::string zstd_with_window(int log) {
  std::string frame("\x28\xb5\x2f\xfd\0", 5);
  frame += static_cast<char>((log - 10) << 3);
  const std::string content = "content";
  frame += static_cast<char>(content.size() << 3 | 1);  // the last block
  return frame + std::string(2, '\0') + content;
}

TEST(ZstdShardTest, LimitsWindow) {
  const TemporaryDirectory folder;
  const auto read = [&folder](const std::string& content) {
    write_whole(folder / "a.zst", content);
    return read_rest(**open_shard(folder / "a.zst"));
  };
  EXPECT_EQ(read(zstd_with_window(25)).bytes, "content");
  expect_corrupt(read(zstd_with_window(26)).status,
                 "a window of more than 32 MiB (compress it without --long and --ultra)");
}

}  // namespace
}  // namespace stoker::data::stream
