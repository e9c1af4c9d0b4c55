#include "shared/run/setting_changes.h"

#include <map>
#include <string>
#include <vector>

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

// A run that is resumed from a checkpoint of step 1300.
class LostSettingChangesTest : public ::testing::Test {
 protected:
  static SettingChange change(uint64_t step, const std::string& key, const std::string& current) {
    return {.time = "t", .step = step, .key = key, .previous = "0", .current = current};
  }
  // What is left of `changes` if the checkpoint has `values`.
  std::vector<SettingChange> left_of(const std::vector<SettingChange>& changes,
                                     const std::map<std::string, std::string>& values) const {
    std::string text;
    for (const SettingChange& change : changes) text += to_json(change) + "\n";
    test::write_whole(path_, text + "{\"time\":\"20");
    EXPECT_TRUE(
        remove_lost_changes(default_file_system(), path_, 1300, [&](const std::string& key) {
          return values.at(key);
        }).ok());
    return *read_setting_changes(path_);
  }

  test::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "setting_changes.jsonl";
};

TEST_F(LostSettingChangesTest, RemovesChangesAfterCheckpoint) {
  EXPECT_THAT(left_of({change(1200, "a", "1"), change(1301, "b", "2"), change(1400, "a", "3")}, {}),
              ElementsAre(change(1200, "a", "1")));
  EXPECT_THAT(left_of({change(1301, "b", "2")}, {}), IsEmpty());
}

TEST_F(LostSettingChangesTest, KeepsChangesOfStepOfCheckpointThatItHas) {
  const SettingChange first = change(1300, "a", "1"), second = change(1300, "a", "2"),
                      other = change(1300, "b", "x");
  EXPECT_THAT(left_of({first, other, second}, {{"a", "2"}, {"b", "x"}}),
              ElementsAre(first, other, second));
  EXPECT_THAT(left_of({first, other, second}, {{"a", "1"}, {"b", "y"}}), ElementsAre(first));
  EXPECT_THAT(left_of({first, other, second}, {{"a", "0"}, {"b", "x"}}), ElementsAre(other));
}

TEST_F(LostSettingChangesTest, LeavesFileWithoutLostChangesAlone) {
  EXPECT_THAT(left_of({change(1200, "a", "1")}, {}), ElementsAre(change(1200, "a", "1")));
  EXPECT_NE(read_file(path_, 1000)->find("{\"time\":\"20"), std::string::npos);
}

TEST_F(LostSettingChangesTest, AcceptsMissingFile) {
  const auto none = [](const std::string&) { return std::string(); };
  EXPECT_TRUE(remove_lost_changes(default_file_system(), path_, 1, none).ok());
  EXPECT_EQ(read_file(path_, 10).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace stoker::run
