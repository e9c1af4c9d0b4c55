#include "ctl/top.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <clocale>
#include <cmath>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ctl/daemon_client.h"
#include "ctl/daemon_commands.h"
#include "ctl/run_locator.h"
#include "ctl/run_report.h"
#include "ctl/status_format.h"
#include "ctl/top_view.h"
#include "shared/base/file.h"
#include "shared/control/trainer_status.h"
#include "shared/run/run_state.h"
#include "shared/view/curve_history.h"
#include "shared/view/log_tail.h"
#include "shared/view/run_view.h"

// After the others: it defines macros with common names.
#include <ncursesw/curses.h>
#undef timeout

extern char** environ;

namespace stoker::ctl {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kStatusInterval = 1000ms;
constexpr auto kFilesInterval = 2000ms;
constexpr auto kRequestTimeout = 5000ms;
constexpr auto kMessageTime = 6s;
constexpr int kMaxFailures = 60;
constexpr size_t kMaxLogLines = 200;
constexpr uint64_t kBytesOfRefresh = 256 << 20;  // of train.jsonl

volatile sig_atomic_t pending_signal = 0;
void on_signal(int number) { pending_signal = number; }

// Ends curses, whatever way the block is left, and lets SIGTERM, SIGHUP and SIGINT end the loop.
class Screen {
 public:
  Screen() {
    struct sigaction action {};
    action.sa_handler = on_signal;  // without SA_RESTART: a wait ends
    for (const int number : {SIGTERM, SIGHUP, SIGINT}) ::sigaction(number, &action, nullptr);
    std::setlocale(LC_CTYPE, "");
    is_open_ = ::newterm(nullptr, stdout, stdin) != nullptr;
    if (!is_open_) return;
    ::cbreak();
    ::noecho();
    ::nonl();
    ::keypad(stdscr, TRUE);
    ::nodelay(stdscr, TRUE);
    ::set_escdelay(25);
    (void)::curs_set(0);
    if (has_color()) {
      ::start_color();
      ::use_default_colors();
      for (short color = 1; color < 8; ++color) ::init_pair(color, color, -1);
    }
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen() { close(); }
  void close() {
    if (std::exchange(is_open_, false)) ::endwin();
  }

  bool is_open() const { return is_open_; }
  static bool has_color() { return ::has_colors() == TRUE && ::getenv("NO_COLOR") == nullptr; }
  // Curses sends only the difference to what is on the screen.
  static void draw(const std::vector<std::string>& lines) {
    ::erase();
    for (size_t row = 0; row < lines.size(); ++row) draw_line(static_cast<int>(row), lines[row]);
    ::refresh();
  }

 private:
  // Text with the ANSI colors of render_top().
  static void draw_line(int row, const std::string& line) {
    ::move(row, 0);
    ::attrset(A_NORMAL);
    for (size_t i = 0; i < line.size();) {
      if (line[i] != '\x1b') {
        const size_t end = std::min(line.find('\x1b', i), line.size());
        ::addnstr(line.data() + i, static_cast<int>(end - i));
        i = end;
        continue;
      }
      const size_t end = std::min(line.find('m', i), line.size());
      attr_t attributes = A_NORMAL;
      int code = 0;
      for (size_t k = i + 2; k <= end; ++k) {
        if (k < end && line[k] >= '0' && line[k] <= '9') {
          code = code * 10 + (line[k] - '0');
          continue;
        }
        if (code == 1) attributes |= A_BOLD;
        if (code == 2) attributes |= A_DIM;
        if (code == 7) attributes |= A_REVERSE;
        if (code >= 31 && code <= 37) attributes |= static_cast<attr_t>(COLOR_PAIR(code - 30));
        code = 0;
      }
      ::attrset(static_cast<int>(attributes));
      i = end + 1;
    }
  }

  bool is_open_ = false;
};

// BackgroundCommand: another stokerctl for a command that can take long, such as a checkpoint. It
// continues when this process ends.
class BackgroundCommand {
 public:
  static std::optional<BackgroundCommand> start(const CommandLine& command, const char* name) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return std::nullopt;
    UniqueFd output(ends[0]), input(ends[1]);
    std::vector<std::string> words{"stokerctl"};
    if (!command.socket.empty()) words.insert(words.end(), {"--socket", command.socket});
    if (!command.run_dir.empty()) words.insert(words.end(), {"--run-dir", command.run_dir});
    words.emplace_back(name);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDERR_FILENO);
    pid_t pid = 0;
    const int error =
        ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return std::nullopt;
    return BackgroundCommand(name, pid, std::move(output));
  }

  const std::string& name() const { return name_; }
  // What it printed, once it has ended.
  std::optional<std::string> poll_result() {
    // First: what it prints before its end is in the pipe then.
    int status = 0;
    const bool has_ended = ::waitpid(pid_, &status, WNOHANG) == pid_;
    char buffer[512];
    for (ssize_t size; (size = ::read(output_.get(), buffer, sizeof buffer)) > 0;)
      if (text_.size() < 4096) text_.append(buffer, static_cast<size_t>(size));
    if (!has_ended) return std::nullopt;
    while (text_.ends_with('\n')) text_.pop_back();
    return text_;
  }

 private:
  BackgroundCommand(std::string name, pid_t pid, UniqueFd output)
      : name_(std::move(name)), pid_(pid), output_(std::move(output)) {}
  std::string name_;
  pid_t pid_;
  UniqueFd output_;
  std::string text_;
};

class Top {
 public:
  Top(const CommandLine& command, const Console& console, DaemonClient client)
      : command_(command), console_(console), client_(std::move(client)) {
    if (client_.maybe_layout()) open_run(*client_.maybe_layout());
  }

  ExitCode run() {
    if (const Status answered = read_status(); !answered.ok()) return end_of_daemon(answered);
    Screen screen;
    if (!screen.is_open())
      return console_.fail(Status(StatusCode::kInvalidArgument,
                                  "the terminal is not known (TERM); use stokerctl watch"),
                           ExitCode::kUsage);
    if (state_.status.device.starts_with("cuda")) maybe_gpus_ = GpuUsage::open();
    const Status ended = loop();
    screen.close();
    if (pending_signal == SIGTERM || pending_signal == SIGHUP) {
      ::signal(pending_signal, SIG_DFL);
      ::raise(pending_signal);
    }
    return ended.ok() ? ExitCode::kSuccess : end_of_daemon(ended);
  }

 private:
  void open_run(const run::RunLayout& layout) {
    maybe_layout_ = layout;
    history_.emplace(layout.train_metrics_file());
    state_.name = view::RunView(layout).name();
  }

  // Connects again after an error.
  Status read_status() {
    if (!state_.error.empty()) {
      auto client = DaemonClient::open(command_);
      if (!client.ok()) return client.status();
      client_ = *std::move(client);
    }
    const auto reply = client_.request(control::GetStatus{}, kRequestTimeout);
    if (!reply.ok()) return reply.status();
    STOKER_ASSIGN_OR_RETURN(state_.status, control::parse_trainer_status(*reply));
    if (!maybe_layout_ && !state_.status.run_dir.empty())
      open_run(run::RunLayout(state_.status.run_dir));
    state_.summary = summary_of_files_;
    add_status(state_.summary, state_.status);
    state_.summary.is_running = true;
    state_.error.clear();
    num_failures_ = 0;
    return {};
  }
  // An error of a run that continues is shown, and the next interval tries again.
  Status try_read_status() {
    Status status = read_status();
    if (status.ok()) return status;
    using Phase = run::RunState::Phase;
    if (!maybe_layout_ || run::read_run_state(*maybe_layout_).phase != Phase::kRunning ||
        ++num_failures_ > kMaxFailures)
      return status;
    state_.error = status.message();
    return {};
  }

  void read_files() {
    if (maybe_gpus_) state_.gpus = maybe_gpus_->read();
    if (!maybe_layout_) return;
    summary_of_files_ = view::read_summary(*maybe_layout_, state_.name);
    history_->refresh(kBytesOfRefresh);
    Curve train{.name = "train loss", .kind = Curve::Kind::kLine, .points = {}};
    using History = view::CurveHistory;
    state_.cpu_cores.clear();
    state_.transfer.clear();
    const auto sum = [](const History::Row& row, std::initializer_list<Resource> resources) {
      double total = 0;
      for (const Resource one : resources)
        if (const double value = row[History::kFirstResource + static_cast<size_t>(one)];
            std::isfinite(value))
          total += value;
      return total;
    };
    for (const History::Row& row : history_->rows()) {
      train.points.emplace_back(row[History::kStep], row[History::kLoss]);
      if (std::isnan(row[History::kFirstResource])) continue;  // not measured
      state_.cpu_cores.push_back(sum(row, {Resource::kCpu, Resource::kWorkerCpu}));
      state_.transfer.push_back(sum(row, {Resource::kRead, Resource::kWritten,
                                          Resource::kWorkerRead, Resource::kWorkerWritten}));
    }
    if (const auto& last = history_->last()) state_.stall_ms_per_step = (*last)[History::kStallMs];
    state_.curves = {std::move(train)};
    if (const auto evals = read_evals(*maybe_layout_); evals.ok()) {
      if (const auto metrics = reported_metrics(*evals); !metrics.empty()) {
        Curve val{.name = metrics.front().text(), .kind = Curve::Kind::kMarks, .points = {}};
        for (const run::EvalResult& eval : *evals)
          if (const auto value = find_value(eval, metrics.front()))
            val.points.emplace_back(static_cast<double>(eval.step), *value);
        state_.curves.push_back(std::move(val));
      }
    }
  }

  void read_log() {
    if (!maybe_layout_) return;
    if (!maybe_tail_) {
      auto tail = view::LogTail::open(maybe_layout_->trainer_log(), kMaxLogLines);
      if (!tail.ok()) return;
      maybe_tail_.emplace(*std::move(tail));
    }
    const auto more = maybe_tail_->read_more();
    if (!more.ok()) return;
    std::istringstream lines(*more);
    for (std::string line; std::getline(lines, line);) state_.log.push_back(line);
    if (state_.log.size() > kMaxLogLines)
      state_.log.erase(state_.log.begin(),
                       state_.log.end() - static_cast<std::ptrdiff_t>(kMaxLogLines));
  }

  void start(const char* name) {
    if (maybe_command_) {
      say(maybe_command_->name() + " is not done yet");
      return;
    }
    maybe_command_ = BackgroundCommand::start(command_, name);
    say(maybe_command_ ? std::string(name) + " …" : "cannot start stokerctl");
  }
  void say(std::string text) {
    state_.message = std::move(text);
    message_end_ = Clock::now() + kMessageTime;
  }

  // False: quit.
  bool on_key(int key) {
    switch (key) {
      case 'q':
      case 'Q':
        return false;
      case 'p':
        start(state_.status.state == control::TrainerState::kPaused ? "resume" : "pause");
        break;
      case 'c':
        start("checkpoint");
        break;
      case '?':
      case 'h':
        state_.has_help = !state_.has_help;
        break;
      case 'l':
        state_.level = static_cast<ShownLevel>((static_cast<int>(state_.level) + 1) % 4);
        break;
      default:
        break;
    }
    return true;
  }

  void draw() const {
    TextStyle style = console_.style;
    int rows = 0;
    getmaxyx(stdscr, rows, style.columns);
    style.color = Screen::has_color();
    Screen::draw(render_top(state_, rows, style));
  }

  // Ok: q or a signal. Otherwise: why stokerd does not answer.
  Status loop() {
    auto next_status = Clock::now() + kStatusInterval, next_files = Clock::now();
    DrawSchedule draws;
    read_log();
    draws.request();
    while (pending_signal == 0) {
      auto now = Clock::now();
      if (now >= next_files) {
        read_files();
        next_files = now + kFilesInterval;
        draws.request();
      }
      if (now >= next_status) {
        STOKER_RETURN_IF_ERROR(try_read_status());
        read_log();
        next_status = now + kStatusInterval;
        draws.request();
      }
      if (maybe_command_) {
        if (auto result = maybe_command_->poll_result()) {
          say(result->empty() ? maybe_command_->name() + ": done" : *result);
          maybe_command_.reset();
          next_status = now;
          draws.request();
        }
      }
      if (!state_.message.empty() && !maybe_command_ && now >= message_end_) {
        state_.message.clear();
        draws.request();
      }
      if (draws.begin(now)) draw();
      const auto until = std::min({next_status, next_files, draws.due().value_or(next_status),
                                   maybe_command_ ? now + 100ms : next_status});
      now = Clock::now();
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(
          std::max(until - now, Clock::duration::zero()));
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      ::poll(&input, 1, static_cast<int>(wait.count()));
      if ((input.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return {};
      for (int key; (key = ::getch()) != ERR;) {
        if (key == KEY_RESIZE)
          draws.request_immediately();
        else
          draws.request();
        if (!on_key(key)) return {};
      }
    }
    return {};
  }

  // The run has ended, or stokerd was killed.
  ExitCode end_of_daemon(const Status& status) const {
    if (!maybe_layout_) return console_.fail(status, exit_code_for_reply(status));
    auto state = run::read_run_state(*maybe_layout_);
    const auto deadline = Clock::now() + 10s;
    while (state.phase == run::RunState::Phase::kRunning && Clock::now() < deadline &&
           status.code() != StatusCode::kTimedOut) {
      std::this_thread::sleep_for(50ms);
      state = run::read_run_state(*maybe_layout_);
    }
    if (!state.exit_code())  // also preempted: it has an exit code, too
      return console_.fail(status, exit_code_for_reply(status));
    console_.out << render_summary_line(view::read_summary(*maybe_layout_, state_.name),
                                        console_.style)
                 << "\n";
    return static_cast<ExitCode>(*state.exit_code());
  }

  const CommandLine& command_;
  const Console& console_;
  DaemonClient client_;
  std::optional<run::RunLayout> maybe_layout_;
  view::RunSummary summary_of_files_;
  std::optional<view::CurveHistory> history_;
  std::optional<view::LogTail> maybe_tail_;
  std::optional<GpuUsage> maybe_gpus_;
  std::optional<BackgroundCommand> maybe_command_;
  Clock::time_point message_end_;
  int num_failures_ = 0;  // in a row
  TopState state_;
};

}  // namespace

ExitCode show_top(const CommandLine& command, const Console& console) {
  if (!console.style.live || command.json || ::isatty(STDIN_FILENO) != 1)
    return watch_status(command, console, 1s);
  auto client = DaemonClient::open(command);
  if (!client.ok()) return console.fail(client.status(), exit_code_for_reply(client.status()));
  return Top(command, console, *std::move(client)).run();
}

}  // namespace stoker::ctl
