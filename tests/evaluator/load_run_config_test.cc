#include "evaluator/load_run_config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kData =
    "data: {train: {format: synthetic, num_samples: 8, input_shape: [4], num_classes: 2}}\n"
    "task: {name: classification}\n";
constexpr const char* kBuiltIn = "model: {name: mlp, hidden_sizes: [4]}\n";

class LoadRunConfigTest : public ::testing::Test {
 protected:
  Result<config::Config> load(const std::string& text, bool trust = false) {
    test::write_whole(path_, kData + text);
    if (::geteuid() == 0 && ::chown(path_.c_str(), owner_, owner_) != 0) ADD_FAILURE() << "chown";
    if (::chmod(path_.c_str(), mode_) != 0) ADD_FAILURE() << "chmod";
    return load_run_config(path_, {}, trust);
  }

  const test::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "config.yaml";
  uid_t owner_ = 0;
  mode_t mode_ = 0640;
};

TEST_F(LoadRunConfigTest, RejectsCodeInFileOfAnotherUserUnlessTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  owner_ = 4242;
  const std::string plugin = "model: {name: plugin, path: /m.so}\n";
  const auto loaded = load(plugin);
  EXPECT_EQ(loaded.status().code(), StatusCode::kPermission) << loaded.status().to_string();
  EXPECT_THAT(loaded.status().message(),
              AllOf(HasSubstr(path_ + ": belongs to uid 4242, and with model.path, code would run"),
                    HasSubstr("--trust")));
  EXPECT_TRUE(load(plugin, true).ok());
  const std::string command = std::string(kBuiltIn) + "eval: {on_best_command: [/bin/true]}\n";
  EXPECT_THAT(load(command).status().message(), HasSubstr("with eval.on_best_command, code would"));
  EXPECT_TRUE(load(command, true).ok());
}

TEST_F(LoadRunConfigTest, RejectsCacheFolderInFileOfAnotherUserUnlessTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  owner_ = 4242;
  for (const std::string data :
       {"data: {train: {format: text, path: x, tokenizer: {path: t.json}, cache: {dir: "
        "/c}}}\nmodel: {name: gpt}\n",
        "data: {train: {format: image_folder, path: x, transforms: [random_resized_crop: {size: "
        "224}], "
        "cache: {type: packed, dir: /c}}}\ntask: {name: classification}\nmodel: {name: "
        "resnet18}\n"}) {
    test::write_whole(path_, data);
    ASSERT_EQ(::chown(path_.c_str(), owner_, owner_), 0);
    const auto loaded = load_run_config(path_, {}, false);
    EXPECT_EQ(loaded.status().code(), StatusCode::kPermission) << loaded.status().to_string();
    EXPECT_THAT(loaded.status().message(),
                HasSubstr("and with cache.dir, files would be written with your permissions"));
    EXPECT_TRUE(load_run_config(path_, {}, true).ok());
  }
}

TEST_F(LoadRunConfigTest, RejectsCodeInFileThatOthersCanWriteUnlessTrusted) {
  const std::string code = "model: {name: plugin, path: /m.so}\n";
  for (const mode_t mode : {0660, 0602}) {
    mode_ = mode;
    const auto loaded = load(code);
    EXPECT_EQ(loaded.status().code(), StatusCode::kPermission) << loaded.status().to_string();
    EXPECT_THAT(loaded.status().message(),
                AllOf(HasSubstr(path_ + ": other users can write to it, and with model.path"),
                      HasSubstr("chmod go-w " + path_)));
    EXPECT_TRUE(load(code, true).ok());
    EXPECT_TRUE(load(kBuiltIn).ok());
  }
}

TEST_F(LoadRunConfigTest, RejectsDisabledSandboxInFileThatOthersCanWriteUnlessTrusted) {
  const std::string off = std::string(kBuiltIn) + "feed: {sandbox: false}\n";
  const std::string in_process = std::string(kBuiltIn) + "feed: {num_processes: 0}\n";
  EXPECT_TRUE(load(off).ok() && load(in_process).ok()) << "own file";
  mode_ = 0660;
  const auto loaded = load(off);
  EXPECT_EQ(loaded.status().code(), StatusCode::kPermission) << loaded.status().to_string();
  EXPECT_THAT(loaded.status().message(),
              HasSubstr("with feed.sandbox, data would be read without a sandbox; check it"));
  EXPECT_THAT(load(in_process).status().message(), HasSubstr("with feed.num_processes, data"));
  EXPECT_TRUE(load(off, true).ok() && load(in_process, true).ok());
  EXPECT_TRUE(load_run_config(path_, {"feed.num_processes=1"}, false).ok());
}

TEST_F(LoadRunConfigTest, RejectsDisabledSandboxInFileOfAnotherUserUnlessTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const std::string off = std::string(kBuiltIn) + "feed: {sandbox: false}\n";
  const std::string in_process = std::string(kBuiltIn) + "feed: {num_processes: 0}\n";
  owner_ = 4242;
  EXPECT_EQ(load(off).status().code(), StatusCode::kPermission);
  EXPECT_EQ(load(in_process).status().code(), StatusCode::kPermission);
  EXPECT_TRUE(load(off, true).ok() && load(in_process, true).ok());
}

TEST_F(LoadRunConfigTest, RejectsSandboxDisabledByCallerForFileOfOthersUnlessTrusted) {
  mode_ = 0660;
  ASSERT_TRUE(load(kBuiltIn).ok());
  for (const std::string override_text : {"feed.sandbox=false", "feed.num_processes=0"}) {
    const auto loaded = load_run_config(path_, {override_text}, false);
    EXPECT_EQ(loaded.status().code(), StatusCode::kPermission) << override_text;
    EXPECT_THAT(loaded.status().message(), HasSubstr("--trust"));
    EXPECT_TRUE(load_run_config(path_, {override_text}, true).ok()) << override_text;
  }
}

TEST_F(LoadRunConfigTest, AcceptsFileOfAnotherUserWithoutCode) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  owner_ = 4242;
  for (const std::string text : {kBuiltIn, "model: {name: exported, path: /m}\n"}) {
    const auto loaded = load(text);
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
  }
}

TEST_F(LoadRunConfigTest, AcceptsCodeInOwnFile) {
  const auto loaded = load("model: {name: plugin, path: /m.so}\n");
  EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
}

TEST_F(LoadRunConfigTest, ReportsErrorsOfFileWithPath) {
  EXPECT_EQ(load_run_config(path_, {}, false).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(load("model: {nam: mlp}\n").status().message(), HasSubstr(path_ + ":3:"));
  EXPECT_THAT(load("# " + std::string(2 << 20, 'x') + "\n").status().message(),
              HasSubstr("larger than 1 MiB"));
  EXPECT_THAT(load_run_config(folder_.path(), {}, false).status().message(),
              HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace stoker::evaluator
