// Runs of others: what they leave in place of the files of a run, and who may write to it.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunOfOthersTest : public RunTest {
 protected:
  void train_small_run() {
    config_ = write_config(small_config());
    ASSERT_EQ(train(config_, run_dir()).code, 0);
    fs::create_directories(path("victim/requests"));
    for (const char* const name : {"best.json", ".best.json.tmp-0123456789abcdef", "stokerd.log",
                                   "requests/step-000000100.json", "outcomes.jsonl", "train.jsonl"})
      std::ofstream(path("victim/") + name) << "mine";
    before_ = victims();
  }
  std::map<std::string, std::string> victims() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(path("victim")))
      files[entry.path()] = entry.is_directory() ? "" : text_of(entry.path());
    return files;
  }
  // A copy of the run with something else at `name`; both programs must end.
  template <typename Create>
  void expect_programs_end(const std::string& what, const std::string& name, Create create) {
    const std::string copy = run_dir("copy");
    fs::remove_all(copy);
    fs::copy(run_dir(), copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    fs::remove_all(copy + "/" + name);
    fs::create_directories(fs::path(copy + "/" + name).parent_path());
    create(copy + "/" + name);
    Process evaluation = evaluator(copy, {"--once"});
    EXPECT_GE(code_of(evaluation), 0) << what << " at " << name;
    EXPECT_EQ(victims(), before_) << "stoker-eval, " << what << " at " << name;
    Process training = trainer(config_, copy, {"--set", "train.max_steps=220"});
    EXPECT_GE(code_of(training), 0) << what << " at " << name;
    EXPECT_EQ(victims(), before_) << "stokerd, " << what << " at " << name;
  }

  std::string config_;
  std::map<std::string, std::string> before_;
};

constexpr const char* kFiles[] = {
    "LOCK",           "eval/LOCK",           "logs/stokerd.log", "logs/stoker-eval.log",
    "eval/best.json", "metrics/train.jsonl", "lineage.jsonl"};
constexpr const char* kFolders[] = {"eval", "eval/requests", "logs", "metrics", "checkpoints"};

TEST_F(RunOfOthersTest, FifosBlockNoProgram) {
  train_small_run();
  for (const char* const name : kFiles)
    expect_programs_end("a FIFO", name, [](const std::string& place) {
      ASSERT_EQ(::mkfifo(place.c_str(), 0666), 0);
    });
}

TEST_F(RunOfOthersTest, LinksLeadNoProgramOutOfRun) {
  train_small_run();
  for (const char* const name : kFiles)
    expect_programs_end("a link", name, [this](const std::string& place) {
      fs::create_symlink(path("victim/") + fs::path(place).filename().string(), place);
    });
  for (const char* const name : kFolders)
    expect_programs_end("a link", name, [this](const std::string& place) {
      fs::create_directory_symlink(path("victim"), place);
    });
}

// As root evaluates the runs of users.
TEST_F(RunOfOthersTest, HardLinksLeadNoProgramOutOfRun) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
  train_small_run();
  for (const char* const name : {"eval/outcomes.jsonl", "eval/LOCK", "logs/stoker-eval.log",
                                 "metrics/eval.jsonl", "eval/progress.json"}) {
    const std::string copy = run_dir("copy");
    fs::remove_all(copy);
    fs::copy(run_dir(), copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    fs::remove(copy + "/" + name);
    fs::create_hard_link(path("victim/train.jsonl"), copy + "/" + name);
    ASSERT_EQ(::lchown(copy.c_str(), 4242, 4242), 0);
    for (const auto& entry : fs::recursive_directory_iterator(copy))
      if (entry.path() != copy + "/" + name) {
        ASSERT_EQ(::lchown(entry.path().c_str(), 4242, 4242), 0);
      }
    Process evaluation = evaluator(copy, {"--once", "--trust"});
    EXPECT_GE(code_of(evaluation), 0) << name;
    EXPECT_EQ(victims(), before_) << name;
  }
}

// Else training could not read the outcomes and would keep all checkpoints, and an evaluator of the owner not start.
TEST_F(RunOfOthersTest, EvaluationByRootLeavesFilesOfOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
  train_small_run();
  ASSERT_EQ(::lchown(run_dir().c_str(), 4242, 4242), 0);
  for (const auto& entry : fs::recursive_directory_iterator(run_dir()))
    ASSERT_EQ(::lchown(entry.path().c_str(), 4242, 4242), 0);
  Process evaluation = evaluator(run_dir(), {"--once", "--trust"});
  ASSERT_EQ(code_of(evaluation), 0);
  ASSERT_TRUE(fs::exists(run_dir() + "/eval/outcomes.jsonl"));
  for (const auto& entry : fs::recursive_directory_iterator(run_dir())) {
    struct stat info {};
    ASSERT_EQ(::lstat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, 4242u) << entry.path();
    EXPECT_EQ(info.st_gid, 4242u) << entry.path();
  }
}

// Debian's users daemon (1) and bin (2), as members of the group users (100).
TEST_F(RunOfOthersTest, GroupResumesRunIfEachMemberAllowsIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become other users";
  const std::string runs = path("shared");
  fs::create_directory(runs);
  for (const std::string& folder : {folder_, runs}) ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  ASSERT_EQ(::chown(runs.c_str(), 0, 100), 0);
  ASSERT_EQ(::chmod(runs.c_str(), 02770), 0);
  config_ = write_config(small_config("run: {allow_group_access: true}\n"));
  ASSERT_EQ(::chown(config_.c_str(), 1, 100), 0);
  const std::string run = runs + "/run";
  const auto start = [&](const std::string& user, const std::vector<std::string>& more) {
    fs::remove(path("user.out"));
    Process process(joined({"setpriv", "--reuid=" + user, "--regid=" + user, "--groups=100",
                            program("stokerd"), "--config", config_, "--run-dir", run},
                           more),
                    path("user.out"));
    return code_of(process);
  };
  ASSERT_EQ(start("1", {}), 0) << text_of(path("user.out"));
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    struct stat info {};
    ASSERT_EQ(::lstat(entry.path().c_str(), &info), 0);
    if (S_ISLNK(info.st_mode)) continue;
    EXPECT_EQ(info.st_mode & 0007u, 0u) << entry.path();
    EXPECT_EQ(info.st_gid, 100u) << entry.path();
    EXPECT_NE(info.st_mode & 0020u, 0u) << entry.path();
  }
  EXPECT_EQ(start("2", {"--set", "train.max_steps=420"}), 78) << "a file of another user decides";
  EXPECT_THAT(text_of(path("user.out")), HasSubstr("--set run.allow_group_access=true"));
  EXPECT_EQ(start("2", {"--set", "train.max_steps=420", "--set", "run.allow_group_access=true"}), 0)
      << text_of(path("user.out"));
  EXPECT_EQ(newest_step(run), 420u);
  EXPECT_EQ(start("1", {"--set", "train.max_steps=430"}), 0) << text_of(path("user.out"));
  ASSERT_EQ(::chmod(run.c_str(), 02777), 0);
  EXPECT_EQ(start("1", {"--set", "train.max_steps=440"}), 78) << "any user";
}

TEST_F(RunOfOthersTest, DirectoryThatAnybodyMayWriteToIsRefused) {
  config_ = write_config(small_config());
  fs::create_directories(run_dir());
  ASSERT_EQ(::chmod(run_dir().c_str(), 0777), 0);
  EXPECT_EQ(train(config_, run_dir()).code, 78);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("chmod o-w " + run_dir()));
  ASSERT_EQ(::chmod(run_dir().c_str(), 0750), 0);
  EXPECT_EQ(train(config_, run_dir()).code, 0);
  ASSERT_EQ(::chmod((run_dir() + "/eval").c_str(), 0777), 0);
  Process evaluation = evaluator(run_dir(), {"--once"});
  EXPECT_EQ(code_of(evaluation), 78);
  EXPECT_THAT(log_of("stoker-eval"), HasSubstr("chmod o-w " + run_dir() + "/eval"));
}

// A path below a folder of another user, who so chooses a run of this one.
TEST_F(RunOfOthersTest, LinksOfOthersLeadNoProgramToRunOfThisUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a link to another user";
  train_small_run();
  fs::create_directory(path("lab"));
  fs::create_directory_symlink(run_dir(), path("lab/run"));
  for (const char* const name : {"lab", "lab/run"})
    ASSERT_EQ(::lchown(path(name).c_str(), 4242, 4242), 0);
  const std::string text = "leads through the symlink " + path("lab/run") + " of uid 4242";
  EXPECT_EQ(train(config_, path("lab/run"), {"--set", "train.max_steps=420"}).code, 78);
  EXPECT_THAT(log_of("stokerd"), HasSubstr(text));
  Process evaluation = evaluator(path("lab/run"), {"--once"});
  EXPECT_EQ(code_of(evaluation), 78);
  EXPECT_THAT(log_of("stoker-eval"), HasSubstr(text));
  Process batch = ctl(path("lab/run"), {"show-batch", "1"}, "batch");
  EXPECT_EQ(code_of(batch), 78);
  for (const char* const command : {"list", "report"}) {
    Process shown = ctl(path("lab/run"), {command}, command);
    EXPECT_EQ(code_of(shown), 0) << command << " only shows the run";
  }
  ASSERT_EQ(::lchown(path("lab/run").c_str(), 0, 0), 0);
  EXPECT_EQ(train(config_, path("lab/run"), {"--set", "train.max_steps=420"}).code, 0);
}

TEST_F(RunOfOthersTest, DirectoryBelowOneThatAnybodyMayWriteToIsRefused) {
  config_ = write_config(small_config());
  fs::create_directories(path("open/run"));
  ASSERT_EQ(::chmod(path("open").c_str(), 0777), 0);
  EXPECT_EQ(train(config_, path("open/run")).code, 78);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("chmod +t " + path("open")));
  EXPECT_EQ(train(config_, path("open/run"), {"--set", "run.allow_group_access=true"}).code, 0);
  ASSERT_EQ(::chmod(path("open").c_str(), 01777), 0);
  EXPECT_EQ(train(config_, path("open/run")).code, 0);
}

TEST_F(RunOfOthersTest, FilesAreForOwnerAndGroupWhateverTheUmask) {
  config_ = write_config(small_config());
  const mode_t before = ::umask(0);
  const Exit exit = train(config_, run_dir());
  Process evaluation = evaluator(run_dir(), {"--once"});
  const int code = code_of(evaluation);
  ::umask(before);
  EXPECT_EQ(exit.code, 0);
  EXPECT_EQ(code, 0);
  for (const auto& entry : fs::recursive_directory_iterator(run_dir())) {
    struct stat info {};
    ASSERT_EQ(::lstat(entry.path().c_str(), &info), 0);
    if (S_ISLNK(info.st_mode)) continue;
    EXPECT_EQ(info.st_mode & 0027u, 0u) << entry.path();
  }
  struct stat info {};
  ASSERT_EQ(::stat((run_dir() + "/logs/stokerd.log").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0640u);
}

}  // namespace
}  // namespace stoker::test
