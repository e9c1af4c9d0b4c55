#include "ctl/top_view.h"

#include <cmath>

#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TopState some_state() {
  TopState state{.name = "demo"};
  auto& status = state.status;
  status.state = control::TrainerState::kTraining;
  status.step = 1200;
  status.max_steps = 6000;
  status.loss = 0.5;
  status.step_time_ms = 100;
  status.eta_seconds = 60;
  status.feed = {.data_wait_ms = 25,
                 .ready_batches = 3,
                 .queue_capacity = 8,
                 .sample_errors = 2,
                 .workers = 2,
                 .workers_reading = 1};
  status.resources[Resource::kRss] = 412'000'000;
  status.resources[Resource::kPeakRss] = 430'000'000;
  status.resources[Resource::kCpu] = 1.25;
  status.resources[Resource::kWorkerCpu] = 0.5;
  status.resources[Resource::kMachineCpu] = 1.9;
  status.resources[Resource::kWorkerRead] = 12'000'000;
  status.resources[Resource::kDiskRead] = 15'000'000;
  state.cpu_cores = {0, 0.875, 1.75};
  status.checkpoint.last_saved_step = 1000;
  status.checkpoint.stall_ms = 12;
  status.checkpoint.saved_total = 1;
  status.evaluator = {.state = "running",
                      .last_evaluated_step = 800,
                      .best_value = 0.7,
                      .best_step = 600,
                      .best_metric = "val/auroc",
                      .best_direction = "maximize"};
  Curve train{.name = "train loss", .points = {}};
  for (int i = 1; i <= 100; ++i) train.points.emplace_back(10 * i, 2.0 / i);
  state.curves = {train};
  add_status(state.summary, status);
  state.summary.is_running = true;
  state.log = {"2026-01-31T12:00:00.000Z info    one", "2026-01-31T12:00:01.000Z warning two",
               R"({"time":"2026-01-31T12:00:02.000Z", "level":"error","event":"three"})",
               "2026-01-31T12:00:03.000Z debug   four"};
  return state;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(TopViewTest, ShowsAllOfRun) {
  TextStyle style = kTerminal;
  style.color = false;
  const std::string text = joined(render_top(some_state(), 40, style));
  for (const char* const part :
       {"demo  training  step 1 200/6 000 (20 %)", "ETA 60 s", "train loss", "data wait 25",
        "3 of 8 batches ready", "2: read 1.0", "memory     RSS 412 MB (peak 430 MB)",
        "cpu        [           ▁▅█] 1.25 cores, workers 0.500; machine 1.90\n",
        "workers read 12.0 MB/s; machine: disks read 15.0",
        "checkpoint step 1 000, 200 steps ago, stall 12.0 ms",
        "running, 200 steps behind, best val/auroc 0.7000 at step 600", "2 sample errors",
        "12:00:00 info    one", "three", " p  pause"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("four")));  // debug
}

TEST(TopViewTest, FitsScreenOfAnySize) {
  for (const TextStyle& base : {kPiped, kTerminal}) {
    for (const auto& [rows, columns] : {std::pair{24, 80}, {5, 20}, {1, 1}, {0, 80}, {100, 300}}) {
      TextStyle style = base;
      style.columns = columns;
      const auto lines = render_top(some_state(), rows, style);
      EXPECT_EQ(lines.size(), static_cast<size_t>(rows));
      EXPECT_LE(widest_line(joined(lines)), static_cast<size_t>(columns));
    }
  }
}

TEST(TopViewTest, ShowsShortPhasesCompletely) {
  TopState state = some_state();
  state.status.step_time_ms = 0.009;
  state.status.feed.data_wait_ms = 6e-4;
  state.stall_ms_per_step = 1e-5;
  EXPECT_THAT(joined(render_top(state, 24, kPiped)),
              HasSubstr("compute <0.01  data wait <0.01  checkpoint <0.01 ms\n"));
}

TEST(TopViewTest, ShowsHistoryOfResources) {
  TopState state = some_state();
  const auto cpu_line = [&state] {
    for (const std::string& line : render_top(state, 24, kPiped))
      if (line.starts_with("cpu")) return line.substr(0, line.find(']') + 1);
    return std::string();
  };
  EXPECT_EQ(cpu_line(), "cpu        [           _=#]");
  state.cpu_cores.assign(100, 2);
  state.cpu_cores.back() = 1;
  EXPECT_EQ(cpu_line(), "cpu        [#############=]");
  state.cpu_cores.clear();
  EXPECT_EQ(cpu_line(), "cpu        [              ]");
}

TEST(TopViewTest, ShowsResultAndErrorInPlaceOfKeys) {
  TopState state = some_state();
  state.message = "paused at step 1 200";
  EXPECT_THAT(render_top(state, 24, kPiped).back(), HasSubstr("paused at step 1 200"));
  state.error = "stokerd does not answer";
  EXPECT_THAT(render_top(state, 24, kPiped).back(), HasSubstr("stokerd does not answer"));
  state.error.clear();
  state.status.state = control::TrainerState::kPaused;
  state.message.clear();
  EXPECT_THAT(render_top(state, 24, kPiped).back(), HasSubstr("resume"));
}

TEST(TopViewTest, ShowsValuesThatAreNotKnown) {
  TopState state;
  state.status.loss = state.status.step_time_ms = state.status.feed.data_wait_ms = std::nan("");
  state.status.feed.workers_reading = std::nan("");
  const std::string text = joined(render_top(state, 24, kPiped));
  EXPECT_THAT(text, HasSubstr("checkpoint none"));
  EXPECT_THAT(text, HasSubstr("loss       -"));
}

TEST(TopViewTest, ShowsRanksOfGroup) {
  TopState state = some_state();
  EXPECT_THAT(joined(render_top(state, 40, kPiped)), Not(HasSubstr("group")));
  state.status.group = {.world_size = 3,
                        .restart_count = 1,
                        .exchange_ms = 9,
                        .ranks = {{.compute_ms = 20, .data_wait_ms = 1, .optimizer_bytes = 1000},
                                  {.compute_ms = 35, .data_wait_ms = 14, .optimizer_bytes = 1000},
                                  {.compute_ms = 21, .data_wait_ms = 2, .optimizer_bytes = 1000}}};
  TextStyle wide = kPiped;
  wide.columns = 200;
  EXPECT_THAT(
      joined(render_top(state, 40, wide)),
      HasSubstr("group      3 ranks, 1 restart; slowest: rank 1, 35.0 ms/step (median 21.0), "
                "data wait 14.0 ms; exchange 9.00 ms/step; optimizer state 1.00 kB per rank"));
}

TEST(TopViewTest, ShowsGpus) {
  TopState state = some_state();
  state.gpus = {{.index = 0,
                 .name = "NVIDIA H100",
                 .load_percent = 87,
                 .memory_used_bytes = 31'000'000'000,
                 .memory_total_bytes = 80'000'000'000,
                 .celsius = 65,
                 .watts = 410}};
  EXPECT_THAT(joined(render_top(state, 24, kPiped)), HasSubstr("87 %  31.0 GB of 80.0 GB  65 C"));
}

// At 80 columns the action is shown; what is cut says so.
TEST(TopViewTest, ShowsActionFirst) {
  TopState state = some_state();
  state.status.state = control::TrainerState::kDegraded;
  state.status.checkpoint.last_error = "No space left on device: " + std::string(100, 'x');
  add_status(state.summary, state.status);
  const std::string text = joined(render_top(state, 24, kPiped));
  EXPECT_THAT(text,
              HasSubstr("next       fix the cause; 200 steps since the last checkpoint: No "));
  EXPECT_THAT(text, HasSubstr("~\n"));
}

TEST(TopViewTest, ShowsHelpInPlaceOfLog) {
  TopState state = some_state();
  state.has_help = true;
  const std::string text = joined(render_top(state, 30, kPiped));
  EXPECT_THAT(text, HasSubstr("p   pause or resume training"));
  EXPECT_THAT(text, Not(HasSubstr("12:00:00 info    one")));
}

TEST(TopViewTest, EscapesControlCharacters) {
  TopState state = some_state();
  state.name = "a\x1b[2Jb";
  state.log = {"2026-01-31T12:00:00.000Z info    \x1b]0;title\x07"};
  EXPECT_THAT(joined(render_top(state, 24, kPiped)), Not(HasSubstr("\x1b")));
}

TEST(DrawScheduleTest, DrawsChangesAtMostFiveTimesPerSecond) {
  using namespace std::chrono_literals;
  const DrawSchedule::Time start{1h};
  DrawSchedule draws;
  EXPECT_FALSE(draws.begin(start)) << "nothing has changed";
  EXPECT_FALSE(draws.due().has_value());
  std::vector<std::chrono::nanoseconds> times;
  for (auto now = start; now < start + 1s; now += 1ms) {
    draws.request();
    if (draws.begin(now)) times.push_back(now - start);
  }
  EXPECT_EQ(times, (std::vector<std::chrono::nanoseconds>{0ms, 200ms, 400ms, 600ms, 800ms}));
  EXPECT_TRUE(draws.due() == start + 1s) << "the last change is drawn, too";
  EXPECT_TRUE(draws.begin(start + 1s));
  EXPECT_FALSE(draws.begin(start + 2s));
}

TEST(DrawScheduleTest, DrawsImmediatelyAfterResize) {
  using namespace std::chrono_literals;
  const DrawSchedule::Time start{1h};
  DrawSchedule draws;
  draws.request();
  EXPECT_TRUE(draws.begin(start));
  draws.request_immediately();
  EXPECT_TRUE(draws.begin(start + 1ms));
  draws.request();
  EXPECT_FALSE(draws.begin(start + 2ms));
}

TEST(ShownLevelTest, HidesLowerLevels) {
  const std::string warning = "2026-01-31T12:00:01.000Z warning disk full error=info ";
  EXPECT_TRUE(is_shown(warning, ShownLevel::kWarning));
  EXPECT_FALSE(is_shown(warning, ShownLevel::kError));
  EXPECT_TRUE(is_shown("no log line", ShownLevel::kInfo));
  EXPECT_FALSE(is_shown("no log line", ShownLevel::kError));
}

TEST(TruncateLineTest, KeepsColorsAndWholeCharacters) {
  EXPECT_EQ(truncate_line("\x1b[1mabc\x1b[0m def", 3, true), "\x1b[1mab…\x1b[0m");
  EXPECT_EQ(truncate_line("\x1b[1mabc\x1b[0m", 3, true), "\x1b[1mabc\x1b[0m");
  EXPECT_EQ(truncate_line("äöü", 2, true), "ä…");
  EXPECT_EQ(truncate_line("äöü", 2, false), "ä~");
  EXPECT_EQ(truncate_line("abc", 0, true), "");
  EXPECT_EQ(truncate_line("a\xff", 9, true), "a\xff");
}

}  // namespace
}  // namespace stoker::ctl
