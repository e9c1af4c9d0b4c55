#include "ctl/daemon_commands.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/file.h"
#include "shared/base/utf8.h"
#include "shared/control/hello_reply.h"
#include "shared/control/thread_table.h"
#include "shared/control/trainer_status.h"
#include "tests/ctl/fake_daemon.h"
#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class DaemonCommandsTest : public CtlTest {
 protected:
  static std::string reply_line(const std::string& json) {
    return R"({"id":1,"result":)" + json + "}";
  }
  static control::TrainerStatus example_status() {
    control::TrainerStatus status;
    status.state = control::TrainerState::kTraining;
    status.step = 1200;
    status.max_steps = 2000;
    status.loss = 1.5;
    status.lr = 3e-4;
    status.samples_per_second = 1234.5;
    status.step_time_ms = 12.5;
    status.eta_seconds = 242;
    status.device = "cpu";
    status.run_dir = "runs/demo";
    status.checkpoint.last_saved_step = 1000;
    status.evaluator.best_value = std::numeric_limits<double>::quiet_NaN();
    return status;
  }
  FakeDaemon daemon(FakeDaemon::Reply reply) {
    return daemon_of(layout().root(), std::move(reply));
  }
  // The stokerd of `run_dir` on the socket of this run.
  FakeDaemon daemon_of(const std::string& run_dir, FakeDaemon::Reply reply,
                       bool as_another_user = false) {
    const auto run = control::identify_run(run_dir);
    EXPECT_TRUE(run.ok()) << run.status().to_string();
    return FakeDaemon(layout().control_socket(), std::move(reply),
                      control::HelloReply{.stoker_version = "1", .role = "operate", .run = *run},
                      as_another_user);
  }
  // Of twenty steps; the trace is the file `trace`.
  static std::string profile_of(const std::string& trace) {
    return R"({"first_step":1201,"last_step":1220,"steps":20,"device":"cpu","total_ms":400,)"
           R"("median_ms":20,"phases":[{"phase":"forward","median_ms":8,"sum_ms":160,"share":0.4},)"
           R"({"phase":"other","median_ms":12,"sum_ms":240,"share":0.6}],"path":")" +
           trace + "\"}";
  }
};

TEST_F(DaemonCommandsTest, ThreadsPrintsTableOrRawJson) {
  control::ThreadTable table{.rows = {}, .library_threads = 3};
  table.rows.push_back({.name = "trainer",
                        .tid = 4712,
                        .operation = "wait for batch",
                        .state = ThreadState::kWaiting,
                        .since = "2026-01-31T12:00:05.250Z",
                        .seconds = 1.5});
  table.rows.push_back({.name = "examples/enqueue-0\x1b[2J",
                        .tid = 4713,
                        .is_queue_thread = true,
                        .queue = "examples",
                        .operation = "enqueue_many 3/6",
                        .state = ThreadState::kWaiting,
                        .since = "2026-01-31T12:00:00.000Z",
                        .seconds = 242});
  table.rows.push_back({.name = "examples/close",
                        .is_queue_thread = true,
                        .queue = "examples",
                        .operation = "close",
                        .state = ThreadState::kNotStarted,
                        .since = "yesterday",
                        .seconds = 0});
  table.rows.push_back(
      {.name = "examples/stop", .is_queue_thread = true, .state = ThreadState::kStopped});
  const std::string json = control::to_json(table);
  auto fake = daemon([&](const std::string&) { return reply_line(json); });
  const CommandResult shown = ctl({"threads"}, {.columns = 120});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out,
              testing::ContainsRegex("trainer +wait for batch +waiting +12:00:05 +1.5 s\n"));
  EXPECT_THAT(shown.out, testing::ContainsRegex(
                             "examples/enqueue-0.\\[2J +examples +enqueue_many 3/6 +waiting "
                             "+12:00:00 +4 min 2 s\n"));
  EXPECT_THAT(
      shown.out,
      HasSubstr("\n3 queue threads (1 not started, 1 stopped), 1 of stokerd, 3 of libraries\n"));
  EXPECT_THAT(shown.out, Not(HasSubstr("\x1b")));
  EXPECT_EQ(ctl({"--json", "threads"}).out, json + "\n");
  EXPECT_THAT(fake.stop(),
              testing::ElementsAre(HasSubstr("\"threads\""), HasSubstr("\"threads\"")));
}

TEST_F(DaemonCommandsTest, StatusPrintsTableOrRawJson) {
  const std::string json = control::to_json(example_status());
  auto fake = daemon([&](const std::string&) { return reply_line(json); });
  const CommandResult table = ctl({"status"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("training    step 1 200/2 000 (60 %), epoch 0, ETA 4 min"));
  EXPECT_THAT(table.out, HasSubstr("loss        1.500, learning rate 0.000300\n"));
  EXPECT_THAT(table.out, HasSubstr("checkpoint  step 1 000"));
  EXPECT_THAT(table.out, Not(HasSubstr("\x1b")));
  EXPECT_LE(widest_line(table.out), 80u) << table.out;
  EXPECT_THAT(ctl({"status"}, kTerminal).out, HasSubstr("\x1b[1;32mtraining"));
  EXPECT_EQ(ctl({"--json", "status"}).out, json + "\n");
  EXPECT_EQ(run_with_arguments({"--socket", layout().control_socket(), "status"}).out, table.out);
}

TEST_F(DaemonCommandsTest, ControlCommandsSendMethodAndReportResult) {
  auto fake = daemon([&](const std::string&) { return reply_line(R"({"step":1200})"); });
  EXPECT_EQ(ctl({"pause"}).out, "paused at step 1 200\n");
  EXPECT_EQ(ctl({"resume"}).out, "resumed at step 1 200\n");
  EXPECT_EQ(ctl({"checkpoint"}).out, "saved at step 1 200\n");
  EXPECT_EQ(ctl({"stop"}).out, "stopping at step 1 200\n");
  EXPECT_EQ(ctl({"set", "a.b", "0.0025"}).out, "a.b at step 1 200\n");
  EXPECT_EQ(ctl({"unset", "a.b"}).out, "a.b at step 1 200\n");
  EXPECT_EQ(ctl({"--json", "pause"}).out, "{\"step\":1200}\n");
  const auto requests = fake.stop();
  ASSERT_EQ(requests.size(), 7u);
  const char* kExpected[] = {"\"pause\"", "\"resume\"", "\"checkpoint\"",
                             "\"stop\"",  "\"set\"",    "\"unset\""};
  for (size_t i = 0; i < 6; ++i) EXPECT_THAT(requests[i], HasSubstr(kExpected[i]));
  EXPECT_THAT(requests[4], HasSubstr(R"({"key":"a.b","value":"0.0025"})"));
  EXPECT_THAT(requests[5], HasSubstr(R"({"key":"a.b"})"));
}

TEST_F(DaemonCommandsTest, ShowsValueAndLearningRateAfterSet) {
  auto fake = daemon([&](const std::string&) {
    return reply_line(R"({"step":1200,"key":"train.max_steps","value":3000,"lr":0.00021})");
  });
  EXPECT_EQ(ctl({"set", "train.max_steps", "3000"}).out,
            "train.max_steps 3000 at step 1 200, learning rate 0.00021\n");
}

TEST_F(DaemonCommandsTest, DryRunsSendThemAndReportWhatWouldChange) {
  auto fake = daemon([&](const std::string& line) {
    return reply_line(
        line.find("reload") != std::string::npos
            ? R"({"changes":[{"key":"log.level","previous":"info","current":"debug","effective":"now"}]})"
            : R"({"step":1200,"key":"optimizer.lr","value":0.5,"lr":0.25,"dry_run":true})");
  });
  EXPECT_EQ(ctl({"set", "--dry-run", "optimizer.lr", "0.5"}).out,
            "would set optimizer.lr 0.5 at step 1 200, learning rate 0.25\n");
  EXPECT_THAT(ctl({"unset", "--dry-run", "optimizer.lr"}).out,
              HasSubstr("would unset optimizer.lr"));
  EXPECT_THAT(ctl({"reload", "--dry-run"}).out,
              testing::AllOf(HasSubstr("would be reloaded\n"),
                             HasSubstr("log.level  info    debug  now\n")));
  EXPECT_THAT(ctl({"reload"}).out, testing::StartsWith("reloaded\n"));
  const auto requests = fake.stop();
  ASSERT_EQ(requests.size(), 4u);
  for (size_t i = 0; i < 3; ++i) EXPECT_THAT(requests[i], HasSubstr(R"("dry_run":true)"));
  EXPECT_THAT(requests[3], Not(HasSubstr("dry_run")));
}

TEST_F(DaemonCommandsTest, PauseReportsWhetherMemoryWasReleased) {
  std::string reply =
      R"({"step":1200,"state":"paused","released":false,"reason":"training on the CPU"})";
  auto fake = daemon([&](const std::string&) { return reply_line(reply); });
  EXPECT_EQ(ctl({"pause", "--release"}).out,
            "paused at step 1 200, nothing was released: training on the CPU\n");
  reply = R"({"step":1200,"state":"paused","released":true,"device_reserved_bytes":0})";
  EXPECT_EQ(ctl({"pause", "--release"}).out,
            "paused at step 1 200, the memory of the device is released\n");
  EXPECT_THAT(fake.stop()[0], HasSubstr(R"("pause","params":{"release":true})"));
}

// Only on a terminal, where the line is erased at the end.
TEST_F(DaemonCommandsTest, ShowsProgressOfItsJob) {
  const auto event = [](const std::string& fields) {
    return R"({"method":"event","params":{"time":"t","level":"info",)" + fields + "}}\n";
  };
  auto fake = daemon([&](const std::string& line) {
    if (line.find("subscribe") != std::string::npos) return reply_line("{}");
    return event(R"("event":"job started","job":6,"command":"profile 5")") +
           event(R"("event":"job started","job":7,"command":"checkpoint")") +
           event(
               R"("event":"job progress","job":6,"command":"profile 5","done":1,"total":5,"unit":"steps")") +
           event(R"("event":"job progress","job":7,"command":"checkpoint","done":250000000,)"
                 R"("total":1000000000,"unit":"bytes")") +
           reply_line(R"({"step":1200,"job":7})");
  });
  const CommandResult shown = ctl({"checkpoint"}, kTerminal);
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out, "\r\x1b[Ksaving: 25 % of 1.00 GB\r\x1b[Ksaved at step 1 200\n");
  EXPECT_THAT(fake.stop(),
              testing::ElementsAre(HasSubstr(R"("events":"job *")"), HasSubstr("\"checkpoint\"")));
}

TEST_F(DaemonCommandsTest, ShowsNoProgressWithEarlierDaemon) {
  auto fake = daemon([&](const std::string& line) {
    if (line.find("subscribe") == std::string::npos) return reply_line(R"({"step":1200})");
    return std::string(
        R"({"id":1,"error":{"code":-32601,"message":"unknown","data":{"kind":"invalid argument"}}})");
  });
  EXPECT_EQ(ctl({"checkpoint"}, kTerminal).code, 0);
  EXPECT_EQ(fake.stop().size(), 2u);
}

// A late reply to the first request would be taken for that of the second.
TEST_F(DaemonCommandsTest, SendsNothingAfterRequestWithoutReply) {
  auto fake = daemon([&](const std::string&) { return std::optional<std::string>(); });
  EXPECT_NE(ctl({"checkpoint"}, kTerminal).code, 0);
  EXPECT_EQ(fake.stop().size(), 1u);
}

TEST_F(DaemonCommandsTest, ShowBatchAsksDaemonForOnePartAfterTheOther) {
  const auto part = [](int begin, int end, const std::string& next) {
    std::string samples;
    for (int i = begin; i < end; ++i)
      samples += (i > begin ? "," : "") + std::string(R"({"ticket":4,"row":)") + std::to_string(i) +
                 R"(,"epoch":0,"dataset_epoch":0,"sample":7,"path":"a\u001b[2J","offset":0})";
    return R"({"step":3,"max_steps":10,"num_samples":40,"samples":[)" + samples + "]" + next + "}";
  };
  auto fake = daemon([&](const std::string& line) {
    return reply_line(line.find(R"("first_sample":0)") != std::string::npos
                          ? part(0, 2, R"(,"next":2)")
                          : part(2, 5, ""));
  });
  const auto ask = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"--socket", layout().control_socket()});
    return run_with_arguments(words);
  };
  const CommandResult shown = ask({"show-batch", "3"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("step 3 of 10: 5 of the 40 samples of data.train\n"));
  EXPECT_THAT(shown.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(ask({"--json", "show-batch", "3"}).out,
              testing::AllOf(HasSubstr(R"("row":4)"), Not(HasSubstr("next"))));
  const auto requests = fake.stop();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_THAT(requests[1], HasSubstr(R"("show_batch","params":{"step":3,"first_sample":2})"));
}

// It must neither ask forever nor show samples twice.
TEST_F(DaemonCommandsTest, ShowBatchRejectsPartsThatDoNotFollowEachOther) {
  auto fake = daemon([&](const std::string&) {
    return reply_line(R"({"step":3,"max_steps":10,"num_samples":40,"samples":[],"next":0})");
  });
  const CommandResult shown =
      run_with_arguments({"--socket", layout().control_socket(), "show-batch", "3"});
  EXPECT_EQ(shown.code, 69);
  EXPECT_THAT(shown.err, HasSubstr("incomplete or wrong reply"));
}

TEST_F(DaemonCommandsTest, ShowBatchRejectsSamplesOfAnotherStep) {
  auto fake = daemon([&](const std::string&) {
    return reply_line(
        R"({"step":4,"max_steps":10,"num_samples":40,"samples":[{"ticket":4,"row":0,"epoch":0,)"
        R"("dataset_epoch":0,"sample":7,"path":"a","offset":0}]})");
  });
  EXPECT_EQ(run_with_arguments({"--socket", layout().control_socket(), "show-batch", "3"}).code,
            69);
}

TEST_F(DaemonCommandsTest, ShowsSettingsWithTheirOrigins) {
  const std::string reply =
      R"({"settings":[{"key":"optimizer.lr","value":0.0001,"origin":"live","can_change":true,)"
      R"("configured":0.0003},{"key":"log.level","value":"info","origin":"default",)"
      R"("can_change":true}]})";
  auto fake = daemon([&](const std::string&) { return reply_line(reply); });
  const CommandResult shown = ctl({"get"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("optimizer.lr  0.0001  live, configured: 0.0003\n"));
  EXPECT_THAT(shown.out, HasSubstr("log.level     info    default\n"));
  EXPECT_THAT(ctl({"--json", "get", "optimizer"}).out,
              HasSubstr(R"({"key":"log.level","value":"info","origin":"default")"));
  const auto requests = fake.stop();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_THAT(requests[1], HasSubstr(R"("method":"get","params":{"key":"optimizer"})"));
}

TEST_F(DaemonCommandsTest, ReportsInvalidReplyToGet) {
  auto fake = daemon([&](const std::string&) { return reply_line(R"({"settings":[7]})"); });
  EXPECT_THAT(ctl({"get"}).err, HasSubstr("invalid reply"));
}

TEST_F(DaemonCommandsTest, ProfilePrintsTableAndCopiesTraceFile) {
  const std::string trace = layout().profiles_dir() + "/trace.json";
  write_file(trace, "the trace");
  const std::string profile = profile_of(trace);
  auto fake = daemon([&](const std::string& line) {
    return reply_line(line.find("status") != std::string::npos ? control::to_json(example_status())
                                                               : profile);
  });
  const CommandResult table = ctl({"profile", "20", "--output", path("copy.json")});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("steps 1 201 to 1 220 on cpu\n"));
  EXPECT_THAT(table.out, HasSubstr("  forward       8.00     160   40.0 %\n"));
  EXPECT_THAT(table.out, HasSubstr("  step          20.0     400  100.0 %\n"));
  EXPECT_THAT(table.out, HasSubstr(trace));
  EXPECT_EQ(*read_file(path("copy.json"), 100), "the trace");
  EXPECT_THAT(ctl({"--json", "profile", "20", "--kernels"}).out, HasSubstr(R"("total_ms":400,)"));
  EXPECT_EQ(ctl({"profile", "101", "--kernels"}).code, 64);
  const auto requests = fake.stop();
  EXPECT_THAT(requests.back(), HasSubstr(R"("profile","params":{"steps":20,"kernels":true})"));
}

TEST_F(DaemonCommandsTest, ProfileCopiesNoFileOutsideOfRunDirectory) {
  write_file(path("secret.json"), "secret");
  std::string trace = path("secret.json");
  auto fake = daemon([&](const std::string& line) {
    return reply_line(line.find("status") != std::string::npos ? control::to_json(example_status())
                                                               : profile_of(trace));
  });
  const auto copy = [&] { return ctl({"profile", "20", "--output", path("copy.json")}); };
  EXPECT_EQ(copy().code, 74) << "another directory";
  const std::string link = layout().profiles_dir() + "/link.json";
  std::filesystem::create_directories(layout().profiles_dir());
  std::filesystem::create_symlink(path("secret.json"), link);
  trace = link;
  const CommandResult linked = copy();
  EXPECT_EQ(linked.code, 74);
  EXPECT_THAT(linked.err, HasSubstr("a link is not followed"));
  trace = layout().profiles_dir() + "/..";
  EXPECT_EQ(copy().code, 74) << "a directory";
  EXPECT_FALSE(std::filesystem::exists(path("copy.json")));
}

TEST_F(DaemonCommandsTest, ProfileFollowsNoLinkInsideRunDirectory) {
  write_file(layout().root() + "/private/trace.json", "private");
  const std::string trace = layout().profiles_dir() + "/trace.json";
  auto fake = daemon([&](const std::string& line) {
    return reply_line(line.find("status") != std::string::npos ? control::to_json(example_status())
                                                               : profile_of(trace));
  });
  const auto copy = [&] { return ctl({"profile", "20", "--output", path("copy.json")}).code; };
  std::filesystem::create_directory_symlink("private", layout().profiles_dir());
  EXPECT_EQ(copy(), 74) << "the folder is a link";
  std::filesystem::remove(layout().profiles_dir());
  std::filesystem::create_directory(layout().profiles_dir());
  std::filesystem::create_symlink("../private/trace.json", trace);
  EXPECT_EQ(copy(), 74) << "the file is a link";
  EXPECT_FALSE(std::filesystem::exists(path("copy.json")));
  std::filesystem::remove(trace);
  write_file(trace, "steps");
  EXPECT_EQ(copy(), 0);
  EXPECT_EQ(*read_file(path("copy.json"), 100), "steps");
}

TEST_F(DaemonCommandsTest, ProfileReportsWaitingOnPausedRun) {
  auto paused = example_status();
  paused.state = control::TrainerState::kPaused;
  auto fake = daemon([&](const std::string& line) {
    if (line.find("status") != std::string::npos) return reply_line(control::to_json(paused));
    return std::string(R"({"id":2,"error":{"code":-32000,"message":"training ended before a step )"
                       R"(was profiled","data":{"kind":"closed"}}})");
  });
  const CommandResult result = ctl({"profile", "5"});
  EXPECT_EQ(result.code, 69);
  EXPECT_THAT(result.err, HasSubstr("training is paused; the profile starts when it resumes"));
  EXPECT_THAT(result.err, HasSubstr("ended before a step was profiled"));
}

constexpr const char* kInspectionRecord =
    R"({"step":1210,"tensors":[{"kind":"gradient","name":"fc.weight","count":64,"mean":0.5,)"
    R"("std":0.25,"min":-1,"max":1,"norm":4.5,"zero_fraction":0.125,"nan_count":2,"inf_count":0,)"
    R"("histogram":[[-1,0],[0,16],[1,32]]}]})";

// Opens an inspection, returns one record, then reports the end.
FakeDaemon::Reply inspect_one_record(const std::string& status) {
  return [status, num_requests = 0](const std::string& line) mutable {
    const auto reply_line = [](const std::string& json) {
      return R"({"id":1,"result":)" + json + "}";
    };
    if (line.find("\"status\"") != std::string::npos) return reply_line(status);
    if (line.find("\"inspect_open\"") != std::string::npos &&
        line.find("glob") != std::string::npos)
      return reply_line(
          R"({"inspection":3,"step":1200,"parameters":0,"gradients":1,"activations":0})");
    if (++num_requests == 1) {
      return reply_line(R"({"inspection":3,"records":[)" + std::string(kInspectionRecord) +
                        R"(],"next":8,"dropped":7,"end_reason":""})");
    }
    return reply_line(
        R"({"inspection":3,"records":[],"next":8,"dropped":0,"end_reason":"training ended"})");
  };
}

TEST_F(DaemonCommandsTest, InspectPrintsLinePerTensorUntilEnd) {
  auto fake = daemon(inspect_one_record(control::to_json(example_status())));
  const CommandResult lines =
      ctl({"inspect", "fc.*", "--gradients", "--every", "10", "--histograms"});
  EXPECT_EQ(lines.code, 0) << lines.err;
  EXPECT_THAT(
      lines.out,
      HasSubstr("step=1210 gradient=fc.weight mean=0.5 std=0.25 min=-1 max=1 "
                "norm=4.5 zero_fraction=0.125 nan_count=2 inf_count=0 [--------########]\n"));
  EXPECT_THAT(lines.err, HasSubstr("7 records dropped"));
  EXPECT_THAT(lines.err, HasSubstr("training ended"));
  const auto requests = fake.stop();
  EXPECT_THAT(requests[1], HasSubstr(R"("params":{"glob":"fc.*","every":10,"steps":0,)"
                                     R"("parameters":false,"activations":false,)"
                                     R"("histograms":true})"));
  EXPECT_THAT(requests[3], HasSubstr(R"({"inspection":3,"after":8})"));
}

TEST_F(DaemonCommandsTest, InspectPrintsTableOnTerminalAndRecordsAsJson) {
  {
    auto fake = daemon(inspect_one_record(control::to_json(example_status())));
    const CommandResult table = ctl({"inspect", "fc.*"}, kTerminal);
    EXPECT_EQ(table.code, 0) << table.err;
    EXPECT_THAT(table.out, HasSubstr("step 1 210"));
    EXPECT_THAT(table.out, HasSubstr("fc.weight  gradient"));
    EXPECT_THAT(table.out, HasSubstr("▄▄▄▄▄▄▄▄████████"));
    EXPECT_THAT(table.out, HasSubstr("7 records dropped"));
    fake.stop();
  }
  std::filesystem::remove(layout().control_socket());
  auto fake = daemon(inspect_one_record(control::to_json(example_status())));
  const CommandResult rows = ctl({"--json", "inspect", "fc.*"});
  EXPECT_THAT(rows.out, testing::StartsWith(R"({"step":1210,"tensors":[{)"));
  EXPECT_EQ(std::count(rows.out.begin(), rows.out.end(), '\n'), 1);
}

TEST_F(DaemonCommandsTest, InspectPrintsInputsWithTicketAndFiles) {
  const std::string record =
      R"({"step":4,"ticket":17,"num_files":3,"files":["a.tar","b\u001b.tar"],"tensors":[{"kind":"input",)"
      R"("name":"input","dtype":"U8","shape":[4,3,32,32],"count":12288,"mean":120.5,"std":60,"min":0,)"
      R"("max":255,"norm":1,"zero_fraction":0,"nan_count":0,"inf_count":0}]})";
  const auto reply = [&](const std::string& line) {
    if (line.find("\"status\"") != std::string::npos)
      return reply_line(control::to_json(example_status()));
    if (line.find("\"inspect_open\"") != std::string::npos)
      return reply_line(R"({"inspection":3,"step":3,"inputs":1})");
    return reply_line(R"({"inspection":3,"records":[)" + record +
                      R"(],"next":1,"dropped":0,"end_reason":"all requested steps are recorded"})");
  };
  {
    auto fake = daemon(reply);
    const CommandResult lines = ctl({"inspect", "--inputs"});
    EXPECT_EQ(lines.code, 0) << lines.err;
    EXPECT_THAT(lines.out, HasSubstr("step=4 input=input dtype=U8 shape=[4,3,32,32] mean=120.5"));
    EXPECT_THAT(lines.out,
                HasSubstr("step=4 ticket=17 num_files=3\nstep=4 ticket=17 file=a.tar\n"));
    fake.stop();
  }
  std::filesystem::remove(layout().control_socket());
  auto fake = daemon(reply);
  const CommandResult table = ctl({"inspect", "--inputs"}, kTerminal);
  EXPECT_THAT(table.out, HasSubstr("U8     [4, 3, 32, 32]"));
  EXPECT_THAT(table.out, HasSubstr("ticket 17, 3 files\n  a.tar\n  b"));
  EXPECT_THAT(table.out, HasSubstr("and 1 more\n"));
  EXPECT_EQ(table.out.find("\x1b[2J"), std::string::npos) << "the only record is not redrawn";
}

TEST_F(DaemonCommandsTest, InspectRejectsUnknownTensorAsUsageError) {
  auto fake = daemon([&](const std::string& line) {
    if (line.find("\"status\"") != std::string::npos)
      return reply_line(control::to_json(example_status()));
    return std::string(R"({"id":1,"error":{"code":-32000,"message":"no tensor matches 'fd'; )"
                       R"(did you mean 'fc'?","data":{"kind":"not found"}}})");
  });
  const CommandResult result = ctl({"inspect", "fd"});
  EXPECT_EQ(result.code, 64);
  EXPECT_THAT(result.err, HasSubstr("did you mean 'fc'?"));
}

TEST_F(DaemonCommandsTest, ReportsRejectionWithMatchingExitCode) {
  auto fake = daemon([&](const std::string& line) {
    const bool set = line.find("\"set\"") != std::string::npos;
    return R"({"id":1,"error":{"code":-32000,"message":"no, thanks","data":{"kind":")" +
           std::string(set ? "invalid argument" : "busy") + "\"}}}";
  });
  const CommandResult busy = ctl({"checkpoint"});
  EXPECT_EQ(busy.code, 75) << busy.err;
  EXPECT_EQ(busy.out, "");
  EXPECT_THAT(busy.err, HasSubstr("no, thanks"));
  EXPECT_EQ(ctl({"set", "optimizer.lr", "999999"}).code, 64);
}

// Of every command, whether it is an error or a result, in text and as JSON.
TEST_F(DaemonCommandsTest, PrintsNoControlCharacterOfReplies) {
  const std::string text = "bad\\u001b]0;t\\u0007\u009b2J\u202e\x7f\\nstokerctl: forged";
  bool is_error = true;
  auto fake = daemon([&](const std::string&) {
    if (is_error)
      return R"({"id":1,"error":{"code":-32000,"message":")" + text +
             R"(","data":{"kind":"busy"}}})";
    return reply_line(R"({"step":3,"value":")" + text + R"(","reason":")" + text +
                      R"(","warnings":[")" + text + "\"]}");
  });
  const auto has_control = [](const std::string& out) {
    for (size_t i = 0; i < out.size(); ++i) {
      const auto c = static_cast<unsigned char>(out[i]);
      const bool is_c1 = c == 0xc2 && static_cast<unsigned char>(out[i + 1]) < 0xa0;
      if ((c < 0x20 && c != '\n') || c == 0x7f || is_c1) return true;
    }
    return out.find("\u202e") != std::string::npos;
  };
  const std::vector<std::vector<std::string>> commands{
      {"pause"}, {"status"},  {"get"},    {"set", "optimizer.lr", "1"},
      {"stop"},  {"threads"}, {"reload"}, {"profile", "2"}};
  for (const bool error : {true, false})
    for (const bool as_json : {true, false})
      for (std::vector<std::string> words : commands) {
        is_error = error;
        if (as_json) words.insert(words.begin(), "--json");
        const CommandResult result = ctl(words);
        EXPECT_FALSE(has_control(result.out)) << join(words, " ") << ": " << result.out;
        EXPECT_FALSE(has_control(result.err)) << join(words, " ") << ": " << result.err;
        EXPECT_THAT("\n" + result.out + result.err, Not(HasSubstr("\nstokerctl: forged")));
        if (error) {
          EXPECT_THAT(result.err, HasSubstr("bad?]0;t??2J??\n  stokerctl: forged"));
        }
      }
}

TEST_F(DaemonCommandsTest, ReportsRunStateWithoutDaemon) {
  write_train_metrics(1);
  const CommandResult never = ctl({"status"});
  EXPECT_EQ(never.code, 69);
  EXPECT_THAT(never.err, HasSubstr("stokerd has not run in this directory yet"));
  write_file(layout().lock_file(), "");
  EXPECT_THAT(ctl({"pause"}).err, HasSubstr("was killed"));
  write_exit_status(run::RunOutcome::kFinished, 2000);
  for (const char* command : {"watch", "pause", "checkpoint", "stop"}) {
    const CommandResult ended = ctl({command});
    EXPECT_EQ(ended.code, 69);
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err, HasSubstr("the run has ended, finished at step 2 000"));
  }
  // The end is the answer to `status`.
  write_best(1500, 0.25);
  const CommandResult status = ctl({"status"});
  EXPECT_EQ(status.code, 0);
  EXPECT_EQ(status.err, "");
  EXPECT_THAT(status.out,
              AllOf(HasSubstr("finished    step 2 000, "), HasSubstr(" ago\n"),
                    HasSubstr("best        valid/loss 0.2500 (minimize) at step 1 500\n"),
                    HasSubstr("checkpoint  none\n")));
  const auto json = boost::json::parse(ctl({"--json", "status"}).out).as_object();
  EXPECT_EQ(json.at("state"), "finished");
  EXPECT_EQ(json.at("step"), 2000);
  EXPECT_EQ(json.at("best").at("direction"), "minimize");
  const auto lock = lock_file(layout().lock_file(), "test");
  EXPECT_THAT(ctl({"status"}).err, HasSubstr("it is running, but not listening on this socket"));
}

TEST_F(DaemonCommandsTest, NamesRanksThatRunWithoutChief) {
  write_file(layout().lock_file(), "");
  std::vector<FileLock> locks;
  for (const int rank : {2, 10}) {
    std::filesystem::create_directories(layout().rank_dir(rank));
    auto lock = lock_file(run::RunLayout(layout().rank_dir(rank)).lock_file(), "test");
    ASSERT_TRUE(lock.ok()) << lock.status().to_string();
    locks.push_back(*std::move(lock));
  }
  write_file(run::RunLayout(layout().rank_dir(1)).lock_file(), "");  // has exited
  write_file(layout().rank_dir(0) + "x/LOCK", "");                   // of no rank
  for (const char* command : {"status", "checkpoint"}) {
    const CommandResult lost = ctl({command});
    EXPECT_EQ(lost.code, 69);
    EXPECT_EQ(std::ranges::count(lost.err, '\n'), 1);
    EXPECT_THAT(lost.err, HasSubstr("the chief (rank 0) was killed or its machine crashed; still "
                                    "running: rank 2, 10; these exit when they notice it, and then "
                                    "all ranks are to be started again\n"));
  }
  write_exit_status(run::RunOutcome::kFailed, 40);
  EXPECT_THAT(
      ctl({"status"}).err,
      ContainsRegex("the chief \\(rank 0\\) failed at step 40: .*; still running: rank 2, 10"));
  write_exit_status(run::RunOutcome::kFinished, 40);  // the others end, too
  EXPECT_THAT(ctl({"status"}).out, HasSubstr("finished    step 40"));
  locks.clear();
  write_exit_status(run::RunOutcome::kFailed, 40);
  EXPECT_EQ(ctl({"status"}).code, 0);
  EXPECT_THAT(ctl({"status"}).out, HasSubstr("failed      step 40"));
}

TEST_F(DaemonCommandsTest, NamesTasksThatRunWithoutChief) {
  write_file(layout().lock_file(), "");
  std::vector<FileLock> locks;
  for (const auto& [rank, task] :
       {std::pair(1, "worker 1 (b:2223)"), std::pair(2, "ps 0 (a:2222)")}) {
    std::filesystem::create_directories(layout().rank_dir(rank));
    auto lock = lock_file(run::RunLayout(layout().rank_dir(rank)).lock_file(),
                          run::lock_text(system_clock(), task));
    ASSERT_TRUE(lock.ok()) << lock.status().to_string();
    locks.push_back(*std::move(lock));
  }
  EXPECT_THAT(ctl({"status"}).err,
              HasSubstr("the chief (worker 0) was killed or its machine crashed; still running: "
                        "worker 1 (b:2223), ps 0 (a:2222); nothing is saved until the chief is "
                        "started again\n"));
  write_exit_status(run::RunOutcome::kFailed, 40);
  EXPECT_THAT(ctl({"status"}).err, HasSubstr("the chief (worker 0) failed at step 40: "));
}

TEST_F(DaemonCommandsTest, ExitsWith69OnMissingSocket) {
  const CommandResult result = run_with_arguments({"--socket", path("nothing.sock"), "status"});
  EXPECT_EQ(result.code, 69);
  EXPECT_THAT(result.err, HasSubstr("nothing.sock"));
}

TEST_F(DaemonCommandsTest, ExitsWith69OnForeignServer) {
  FakeDaemon fake(layout().control_socket(),
                  [](const std::string&) { return "220 mail.example ESMTP"; });
  EXPECT_EQ(ctl({"status"}).code, 69);
  fake.stop();
}

TEST_F(DaemonCommandsTest, SendsNothingToDaemonOfAnotherRun) {
  std::filesystem::create_directories(path("other"));
  auto fake = daemon_of(path("other"), [&](const std::string&) { return reply_line("{}"); });
  for (const char* const command : {"status", "watch", "pause", "stop"}) {
    const CommandResult result = ctl({command});
    EXPECT_EQ(result.code, 69) << command;
    EXPECT_EQ(result.out, "") << command;
    EXPECT_THAT(result.err, HasSubstr(path("other"))) << command;
    EXPECT_THAT(result.err, HasSubstr(layout().root())) << command;
  }
  EXPECT_EQ(run_with_arguments({"--socket", layout().control_socket(), "pause"}).code, 0)
      << "--socket names no run";
  EXPECT_EQ(fake.stop().size(), 1u);
}

TEST_F(DaemonCommandsTest, SendsNothingToDaemonOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be several users";
  constexpr uid_t kClient = 4242, kDaemon = 65534;
  auto fake = daemon_of(
      layout().root(), [&](const std::string&) { return reply_line(R"({"step":1200})"); }, true);
  write_train_metrics(1);
  const std::vector<std::vector<std::string>> lines = {
      {"--run-dir", layout().root(), "pause"}, {"--socket", layout().control_socket(), "pause"}};
  // Every user may connect.
  for (const std::string& reachable : {root_.path(), layout().root()})
    ASSERT_EQ(::chmod(reachable.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(layout().control_socket().c_str(), 0777), 0);
  ASSERT_EQ(::seteuid(kClient), 0);
  const bool is_reachable =
      ::faccessat(AT_FDCWD, layout().control_socket().c_str(), W_OK, AT_EACCESS) == 0;
  ASSERT_EQ(::seteuid(0), 0);
  if (!is_reachable) GTEST_SKIP() << "another user cannot reach " << root_.path();
  const auto run_as = [](uid_t user, const std::vector<std::string>& words) {
    EXPECT_EQ(::seteuid(user), 0);
    CommandResult result = run_with_arguments(words);
    EXPECT_EQ(::seteuid(0), 0);
    return result;
  };
  for (const auto& words : lines) {
    ASSERT_EQ(::chown(layout().root().c_str(), 0, 0), 0);
    const CommandResult result = run_as(kClient, words);
    EXPECT_EQ(result.code, 69) << words[0];
    EXPECT_EQ(result.out, "") << words[0];
    EXPECT_THAT(result.err, HasSubstr("belongs to uid 65534")) << words[0];
    EXPECT_THAT(result.err, HasSubstr("run stokerctl as uid 65534 or root")) << words[0];
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(run_as(kDaemon, words).code, 0) << "the same user";
    EXPECT_EQ(run_as(0, words).code, 0) << "root";
    ASSERT_EQ(::chown(layout().root().c_str(), kDaemon, kDaemon), 0);
    EXPECT_EQ(run_as(kClient, words).code, 0) << "the owner of the run directory";
  }
  EXPECT_EQ(fake.stop().size(), 6u);
}

TEST_F(DaemonCommandsTest, RecognizesRunThroughLink) {
  auto fake = daemon([&](const std::string&) { return reply_line(R"({"step":1200})"); });
  std::filesystem::create_directory_symlink(layout().root(), path("link"));
  write_train_metrics(1);
  const CommandResult result = run_with_arguments({"--run-dir", path("link"), "pause"});
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST_F(DaemonCommandsTest, StopSucceedsWhenRunEndsBeforeReply) {
  auto fake = daemon([&](const std::string&) -> std::optional<std::string> {
    write_exit_status(run::RunOutcome::kStopped, 1200);
    return std::nullopt;
  });
  const CommandResult result = ctl({"stop"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("stopped at step 1 200"));
}

// Answers three times, then ends the run with the given outcome.
class WatchCommandTest : public DaemonCommandsTest {
 protected:
  CommandResult watch(std::optional<run::RunOutcome> maybe_outcome, int exit_code, bool json,
                      const TextStyle& style) {
    int num_requests = 0;
    auto fake = daemon([&](const std::string&) -> std::optional<std::string> {
      if (++num_requests <= 3) return reply_line(control::to_json(example_status()));
      if (maybe_outcome) write_exit_status(*maybe_outcome, 2000, exit_code);
      return std::nullopt;
    });
    write_file(layout().lock_file(), "");
    std::ostringstream out, err;
    const CommandLine command{.action = Action::kWatch, .run_dir = layout().root(), .json = json};
    const ExitCode code =
        watch_status(command, Console{.out = out, .err = err, .style = style}, 1ms);
    return {static_cast<int>(code), out.str(), err.str()};
  }
};

TEST_F(WatchCommandTest, PrintsLinePerStatusInPipeUntilRunEnds) {
  const CommandResult result = watch(run::RunOutcome::kFinished, 0, false, kPiped);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 4) << result.out;
  EXPECT_THAT(result.out, HasSubstr("training step 1 200/2 000 (60 %)  loss 1.500"));
  EXPECT_THAT(result.out, HasSubstr("finished step 2 000  all steps are done\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
  EXPECT_LE(widest_line(result.out), 100u);
}

TEST_F(WatchCommandTest, MovesNoCursorOnTerminal) {
  const CommandResult result = watch(run::RunOutcome::kFinished, 0, false, kTerminal);
  EXPECT_THAT(result.out, Not(HasSubstr("\r")));
  EXPECT_THAT(result.out, HasSubstr("\x1b[1;32mfinished\x1b[0m step 2 000"));
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b[K")));
  EXPECT_LE(widest_line(result.out), 80u);
}

TEST_F(WatchCommandTest, PrintsRawRepliesAsJson) {
  const CommandResult result = watch(run::RunOutcome::kFinished, 0, true, kPiped);
  const std::string json = control::to_json(example_status()) + "\n";
  EXPECT_EQ(result.out, json + json + json);
}

TEST_F(WatchCommandTest, ReturnsExitCodeOfFailedRun) {
  EXPECT_EQ(watch(run::RunOutcome::kFailed, 74, false, kPiped).code, 74);
}

TEST_F(WatchCommandTest, ExitsWith69OnKilledRun) {
  const CommandResult result = watch(std::nullopt, 0, false, kPiped);
  EXPECT_EQ(result.code, 69);
  EXPECT_THAT(result.err, HasSubstr("was killed"));
}

}  // namespace
}  // namespace stoker::ctl
