#include "daemon/app/stream_history_file.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::app {
namespace {

class StreamHistoryFileTest : public testing::Test {
 protected:
  void write(const feed::StreamHistory& history) const {
    ASSERT_TRUE(write_stream_history(default_file_system(), path_, "start", history).ok());
  }
  std::optional<feed::StreamHistory> take(const std::string& start = "start") const {
    auto taken = take_stream_history(default_file_system(), path_, start);
    EXPECT_TRUE(taken.ok()) << taken.status().to_string();
    return taken.ok() ? *std::move(taken) : std::nullopt;
  }
  void overwrite(std::streamoff offset, char byte) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file.seekp(offset).put(byte));
  }

  const test::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "stream_history";
  const feed::StreamHistory history_{.begin = 100,
                                     .complete = 102,
                                     .bytes = {std::byte{10}, std::byte{0}, std::byte{'}'}},
                                     .is_last = true};
};

TEST_F(StreamHistoryFileTest, IsOfOneStart) {
  EXPECT_EQ(take(), std::nullopt);
  write(history_);
  EXPECT_EQ(take("another"), std::nullopt);
  EXPECT_EQ(take(), history_);
}

// The process that takes it reads more, and can be killed.
TEST_F(StreamHistoryFileTest, IsLastForOneProcess) {
  write(history_);
  EXPECT_EQ(take(), history_);
  feed::StreamHistory later = history_;
  later.is_last = false;
  EXPECT_EQ(take(), later);
  EXPECT_EQ(take(), later);
}

TEST_F(StreamHistoryFileTest, IsIgnoredIfCorrupt) {
  write(history_);
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(path_));
  for (const std::streamoff at : {std::streamoff{0}, size - 1}) {
    write(history_);
    overwrite(at, 'x');
    EXPECT_EQ(take(), std::nullopt);
  }
  feed::StreamHistory invalid = history_;
  invalid.complete = 104;
  write(invalid);
  EXPECT_EQ(take(), std::nullopt);
}

}  // namespace
}  // namespace stoker::app
