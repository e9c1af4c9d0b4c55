#include "shared/control/hello_reply.h"

#include <unistd.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::control {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RunIdentityTest : public testing::Test {
 protected:
  RunIdentityTest() { fs::create_directories(root_ / "run"); }

  const test::TemporaryDirectory root_;
};

TEST_F(RunIdentityTest, IsSameThroughLinksAndRelativePaths) {
  fs::create_directory_symlink(root_ / "run", root_ / "link");
  const auto direct = identify_run(root_ / "run");
  ASSERT_TRUE(direct.ok()) << direct.status().to_string();
  EXPECT_EQ(direct->run_dir, root_ / "run");
  EXPECT_EQ(direct->pid, ::getpid());
  for (const std::string& spelling :
       {root_ / "link", root_ / "link/../run/", fs::relative(root_ / "link").string()}) {
    const auto other = identify_run(spelling);
    ASSERT_TRUE(other.ok()) << spelling;
    EXPECT_EQ(other->run_dir, direct->run_dir) << spelling;
    EXPECT_EQ(other->run_dir_id, direct->run_dir_id) << spelling;
  }
}

TEST_F(RunIdentityTest, SurvivesMoveAndDiffersBetweenDirectories) {
  const auto before = identify_run(root_ / "run");
  fs::rename(root_ / "run", root_ / "moved");
  fs::create_directories(root_ / "run");
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(identify_run(root_ / "moved")->run_dir_id, before->run_dir_id);
  EXPECT_NE(identify_run(root_ / "run")->run_dir_id, before->run_dir_id);
  EXPECT_EQ(identify_run(root_ / "missing").status().code(), StatusCode::kNotFound);
}

TEST(HelloReplyTest, ReturnsWhatWasRendered) {
  const HelloReply reply{.stoker_version = "1.2.3",
                         .role = "read",
                         .run = {.run_dir = "/a \"b\"\n", .run_dir_id = "1:2", .pid = 7}};
  const auto parsed = parse_hello_reply(to_json(reply));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->stoker_version, reply.stoker_version);
  EXPECT_EQ(parsed->role, reply.role);
  EXPECT_EQ(parsed->run.run_dir, reply.run.run_dir);
  EXPECT_EQ(parsed->run.run_dir_id, reply.run.run_dir_id);
  EXPECT_EQ(parsed->run.pid, reply.run.pid);
}

TEST(HelloReplyTest, RendersValidUtf8) {
  const HelloReply reply{.stoker_version = "1",
                         .role = "read",
                         .run = {.run_dir = "/r\xff", .run_dir_id = "1:2", .pid = 7}};
  const auto parsed = parse_hello_reply(to_json(reply));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->run.run_dir, "/r\xEF\xBF\xBD");
}

TEST(HelloReplyTest, RejectsOtherProtocolVersion) {
  const auto parsed = parse_hello_reply(R"({"protocol_version":1,"stoker_version":"0.9"})");
  EXPECT_EQ(parsed.status().code(), StatusCode::kMismatch);
  EXPECT_EQ(
      parsed.status().message(),
      "stokerd 0.9 speaks protocol version 1, this client version 2; use the stokerctl of its "
      "release");
}

TEST(HelloReplyTest, RejectsReplyWithoutRunIdentity) {
  for (const char* const text :
       {"", "[]", "{}", R"({"stoker_version":"1","role":"read"})",
        R"({"stoker_version":"1","role":"read","run_dir":"/a","run_dir_id":7,"pid":1})",
        R"({"stoker_version":"1","role":"read","run_dir":"/a","run_dir_id":"1:2","pid":"x"})"}) {
    const auto parsed = parse_hello_reply(text);
    EXPECT_EQ(parsed.status().code(), StatusCode::kCorrupt) << text;
    EXPECT_THAT(parsed.status().message(), HasSubstr("the reply to hello: ")) << text;
  }
}

}  // namespace
}  // namespace stoker::control
