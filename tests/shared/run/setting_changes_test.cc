#include "shared/run/setting_changes.h"

#include <stdlib.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"

namespace stoker::run {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const SettingChange kFirst{.time = "2026-01-31T12:00:00.123Z",
                           .step = 1200,
                           .key = "optimizer.lr",
                           .previous = "3.0e-04",
                           .current = "1.0e-04"};
const SettingChange kSecond{.time = "2026-01-31T12:00:01.123Z",
                            .step = 1300,
                            .key = "feed.num_workers",
                            .previous = "\"a\\",
                            .current = "auto"};

TEST(SettingChangesTest, ReadsWhatWasWrittenAndIgnoresInvalidLines) {
  std::string folder = ::testing::TempDir() + "stoker-changes-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/setting_changes.jsonl";
  EXPECT_THAT(*read_setting_changes(path), IsEmpty());
  const std::string text = to_json(kFirst) + "\n[]\n{\"step\":1}\n" +
                           R"({"time":"a","step":-1,"key":"b","previous":"c","current":"d"})" +
                           "\n" + to_json(kSecond) + "\n{\"time\":\"20";
  ASSERT_TRUE(write_file_atomically(default_file_system(), path, text).ok());
  EXPECT_THAT(*read_setting_changes(path), ElementsAre(kFirst, kSecond));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace stoker::run
