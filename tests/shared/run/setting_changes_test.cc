#include "shared/run/setting_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

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
  const test::TemporaryDirectory folder;
  const std::string path = folder / "setting_changes.jsonl";
  EXPECT_THAT(*read_setting_changes(path), IsEmpty());
  const std::string text = to_json(kFirst) + "\n[]\n{\"step\":1}\n" +
                           R"({"time":"a","step":-1,"key":"b","previous":"c","current":"d"})" +
                           "\n" + to_json(kSecond) + "\n{\"time\":\"20";
  test::write_whole(path, text);
  EXPECT_THAT(*read_setting_changes(path), ElementsAre(kFirst, kSecond));
}

}  // namespace
}  // namespace stoker::run
