// Every path of RunLayout as another user can leave it there: a FIFO, a socket, a device, a directory, a
// link to nothing, to a file and to a folder of somebody else. Commands answer, and touch nothing outside.
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <functional>
#include <iterator>
#include <map>
#include <regex>

#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

namespace fs = std::filesystem;

// The names in RunLayout, from its source, so that none is forgotten.
std::vector<std::string> names_of_layout() {
  std::ifstream file(STOKER_RUN_LAYOUT);
  const std::string source(std::istreambuf_iterator<char>(file), {});
  const std::regex name("at\\(\"([^\"]+)\"\\)");
  std::vector<std::string> names;
  for (std::sregex_iterator one(source.begin(), source.end(), name), end; one != end; ++one)
    names.push_back((*one)[1]);
  return names;
}

struct Kind {
  const char* name;
  std::function<bool(const std::string& path, const std::string& victim)> create;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"FIFO", [](const auto& path, const auto&) { return ::mkfifo(path.c_str(), 0666) == 0; }},
      {"socket", [](const auto& path,
                    const auto&) { return ::mknod(path.c_str(), S_IFSOCK | 0666, 0) == 0; }},
      {"device",  // /dev/zero; where it cannot be created, another FIFO
       [](const auto& path, const auto&) {
         return ::mknod(path.c_str(), S_IFCHR | 0666, makedev(1, 5)) == 0 ||
                ::mkfifo(path.c_str(), 0666) == 0;
       }},
      {"directory", [](const auto& path, const auto&) { return fs::create_directory(path); }},
      {"link to nothing",
       [](const auto& path, const auto& victim) {
         return ::symlink((victim + "/none").c_str(), path.c_str()) == 0;
       }},
      {"link to a file",
       [](const auto& path, const auto& victim) {
         return ::symlink((victim + "/secret").c_str(), path.c_str()) == 0;
       }},
      {"link to a folder",
       [](const auto& path, const auto& victim) {
         return ::symlink(victim.c_str(), path.c_str()) == 0;
       }},
  };
  return all;
}

class SpecialFilesTest : public CtlTest {
 protected:
  void SetUp() override {
    CtlTest::SetUp();
    write_train_metrics(3);
    write_eval(10, 1.0);
    write_file(layout().config_file(), "optimizer:\n  lr: 0.1\n");
    write_file(layout().trainer_log(), "2026-01-31T12:00:00.000Z info    training started\n");
    write_file(victim() + "/secret", "secret");
    write_file(victim() + "/step-000000010.json", "secret");
    write_file(victim() + "/.x.tmp-0123456789abcdef", "secret");
    before_ = victims();
  }

  std::string victim() const { return path("victim"); }
  std::map<std::string, std::string> victims() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(victim())) {
      std::ifstream file(entry.path());
      files[entry.path()] =
          entry.is_directory() ? "" : std::string(std::istreambuf_iterator<char>(file), {});
    }
    return files;
  }
  // Ends the test if a command does not.
  void expect_answers(const std::string& what) {
    for (const std::vector<std::string>& command : commands_) {
      ::alarm(20);
      const CommandResult result = ctl(command);
      ::alarm(0);
      EXPECT_EQ((result.out + result.err).find("secret"), std::string::npos)
          << what << ": " << command[0];
      EXPECT_NE(result.out + result.err, "") << what << ": " << command[0];
    }
    EXPECT_EQ(victims(), before_) << what;
  }

  const std::vector<std::vector<std::string>> commands_ = {
      {"status"},         {"list"},         {"verify", "--all"},
      {"report"},         {"logs"},         {"logs", "--evaluator"},
      {"diff", "1", "2"}, {"class-report"}, {"evaluate", "10"}};
  std::map<std::string, std::string> before_;
};

TEST_F(SpecialFilesTest, AreNeitherFollowedNorWaitedForAtAnyPathOfRun) {
  const std::vector<std::string> names = names_of_layout();
  ASSERT_GT(names.size(), 40u);
  for (const std::string& name : names) {
    const std::string place = layout().root() + "/" + name;
    for (const Kind& kind : kinds()) {
      const std::string kept = path("kept");
      const bool exists = fs::exists(fs::symlink_status(place));
      if (exists) fs::rename(place, kept);
      fs::create_directories(fs::path(place).parent_path());
      ASSERT_TRUE(kind.create(place, victim())) << kind.name << " " << place;
      expect_answers(std::string(kind.name) + " at " + name);
      fs::remove_all(place);
      if (exists) fs::rename(kept, place);
    }
  }
}

TEST_F(SpecialFilesTest, HideNoOtherRun) {
  write_exit_status(run::RunOutcome::kFinished, 30);
  fs::create_directories(path("runs"));
  fs::copy(layout().root(), path("runs/good"), fs::copy_options::recursive);
  int number = 0;
  for (const char* const name : {"LOCK", "exit_status.json", "paused.json", "logs/stokerd.log"}) {
    for (const Kind& kind : kinds()) {
      const std::string run = path("runs/odd" + std::to_string(number++));
      fs::copy(layout().root(), run, fs::copy_options::recursive);
      fs::remove_all(run + "/" + name);
      ASSERT_TRUE(kind.create(run + "/" + name, victim()));
    }
  }
  ::alarm(20);
  const CommandResult result = run_with_arguments({"runs", path("runs")});
  ::alarm(0);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, testing::ContainsRegex("good +finished [^\n]* 30 "));
  EXPECT_EQ(result.out.find("secret"), std::string::npos);
}

}  // namespace
}  // namespace stoker::ctl
