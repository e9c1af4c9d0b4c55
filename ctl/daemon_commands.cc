#include "ctl/daemon_commands.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include <boost/json.hpp>

#include "ctl/daemon_client.h"
#include "ctl/inspect_command.h"
#include "ctl/job_progress.h"
#include "ctl/run_locator.h"
#include "ctl/status_format.h"
#include "ctl/text_format.h"
#include "ctl/top_view.h"
#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/json_parser.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"
#include "shared/control/thread_table.h"
#include "shared/control/trainer_status.h"
#include "shared/run/run_state.h"
#include "shared/view/run_view.h"

namespace stoker::ctl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStatusTimeout{10'000};
// Changes are applied between two steps, and a step can take minutes. A checkpoint waits for the
// disk.
constexpr milliseconds kChangeTimeout{600'000};
constexpr milliseconds kSaveTimeout{3'600'000};

// A text and an integer as it is.
std::string text_of(const boost::json::value& value) {
  if (value.is_double()) return format_setting(value.get_double());
  return value.is_string() ? printable(std::string_view(value.get_string()))
                           : printable_json(boost::json::serialize(value));
}

// For example "paused at step 1 200", or "optimizer.lr 0.0001 at step 1 200, learning rate 9.5e-05".
// Ignores unknown fields, so that later versions of stokerd can add some.
std::string format_result(const std::string& done, const std::string& reply) {
  boost::system::error_code error;
  const auto value = boost::json::parse(reply, error);
  if (error || !value.is_object()) return done;
  const auto* const job = value.as_object().if_contains("job");
  const auto* step = value.as_object().if_contains("step");
  if (step == nullptr && job != nullptr) return done + ", job " + text_of(*job);
  if (step == nullptr) return done;
  const auto number = step->to_number<uint64_t>(error);
  if (error) return done;
  const boost::json::object& fields = value.get_object();
  const auto* const setting = fields.if_contains("value");
  const auto* const lr = fields.if_contains("lr");
  const auto* const released = fields.if_contains("released");
  const auto* const reason = fields.if_contains("reason");
  std::string text = done + (setting != nullptr ? " " + text_of(*setting) : "") + " at step " +
                     format_count(number);
  if (lr != nullptr && lr->is_number())
    text += ", learning rate " + format_setting(lr->to_number<double>());
  if (released != nullptr && released->is_bool())
    text +=
        released->get_bool() ? ", the memory of the device is released" : ", nothing was released";
  if (reason != nullptr) text += ": " + text_of(*reason);
  if (const auto* const warnings = fields.if_contains("warnings");
      warnings != nullptr && warnings->is_array())
    for (const boost::json::value& warning : warnings->get_array())
      text += "\nwarning: " + text_of(warning);
  return text;
}

// Returns the state of the run if its directory says how stokerd ended.
std::optional<run::RunState> find_ended_run(const std::optional<run::RunLayout>& maybe_layout) {
  if (!maybe_layout.has_value()) return std::nullopt;
  auto state = run::read_run_state(*maybe_layout);
  if (state.end.has_value()) return state;
  return std::nullopt;
}

// Whether no stokerd is expected: of a preempted run it is, and if the chief has failed, other ranks can still run.
bool has_ended(const run::RunLayout& layout) {
  const auto ended = find_ended_run(layout);
  return ended && ended->phase == run::RunState::Phase::kEnded &&
         (ended->end->outcome != run::RunOutcome::kFailed || find_running_ranks(layout).empty());
}

// Of a failed request. `invalid_argument_exit`: if stokerd rejected an argument.
ExitCode exit_code_for_request(const Status& error, ExitCode invalid_argument_exit) {
  return error.code() == StatusCode::kInvalidArgument ? invalid_argument_exit
                                                      : exit_code_for_reply(error);
}

// Executes the command of the command line, one overload per command type.
class CommandRunner {
 public:
  CommandRunner(const CommandLine& command, const Console& console)
      : command_(command), console_(console) {}

  ExitCode operator()(const control::Pause& pause) const {
    return change("paused", pause.release ? kSaveTimeout : kChangeTimeout);
  }
  ExitCode operator()(const control::Resume&) const { return change("resumed", kChangeTimeout); }
  ExitCode operator()(const control::SaveCheckpoint& save) const {
    return save.wait ? change("saved", kSaveTimeout) : change("started", kStatusTimeout);
  }
  ExitCode operator()(const control::Stop&) const { return change("stopping", kSaveTimeout); }
  ExitCode operator()(const control::SetSetting& set) const {
    return change((set.dry_run ? "would set " : "") + printable(set.key), kChangeTimeout);
  }
  ExitCode operator()(const control::UnsetSetting& unset) const {
    return change((unset.dry_run ? "would unset " : "") + printable(unset.key), kChangeTimeout);
  }
  ExitCode operator()(const control::Profile& profile) const {
    return record_profile(profile, command_, console_);
  }
  ExitCode operator()(const control::OpenInspection& inspection) const {
    return follow_inspection(inspection, command_, console_, milliseconds(100));
  }

 private:
  // Sends the command and prints `done` after stokerd has applied it.
  ExitCode change(const std::string& done, milliseconds timeout) const;

  const CommandLine& command_;
  const Console& console_;
};

void draw(const Console& console, const CommandLine& command, const std::string& reply,
          const control::TrainerStatus& status, const std::optional<run::RunLayout>& maybe_layout) {
  if (command.json) {
    console.print_json(reply);
  } else {
    view::RunSummary summary =
        maybe_layout ? view::read_summary(*maybe_layout, "") : view::RunSummary();
    add_status(summary, status);
    const std::string line = render_summary_line(summary, console.style);
    console.out << (console.style.live
                        ? truncate_line(line, console.style.columns, console.style.unicode)
                        : line)
                << "\n";
  }
  console.out.flush();
}

ExitCode CommandRunner::change(const std::string& done, milliseconds timeout) const {
  auto client = DaemonClient::open(command_);
  if (!client.ok()) return console_.fail(client.status(), exit_code_for_reply(client.status()));
  const auto* const save = std::get_if<control::SaveCheckpoint>(&command_.request);
  const auto reply = save != nullptr && save->wait && !command_.json
                         ? request_job(*client, *save, "saving", console_, timeout)
                         : client->request(command_.request, timeout);
  if (!reply.ok()) {
    // After `stop`, stokerd can exit before the answer arrives.
    const auto ended = std::holds_alternative<control::Stop>(command_.request)
                           ? find_ended_run(client->maybe_layout())
                           : std::optional<run::RunState>();
    if (ended.has_value() && ended->end->outcome != run::RunOutcome::kFailed) {
      if (!command_.json) console_.out << format_run_state(*ended) << "\n";
      return ExitCode::kSuccess;
    }
    return console_.fail(reply.status(), exit_code_for_request(reply.status(), ExitCode::kUsage));
  }
  if (command_.json)
    console_.print_json(*reply);
  else
    console_.out << format_result(done, *reply) << "\n";
  return ExitCode::kSuccess;
}

// Sends a request and prints the reply: with --json as it is, otherwise as `render` formats it.
ExitCode show_reply(const CommandLine& command, const Console& console, const control::Call& call,
                    const std::function<Result<std::string>(const std::string& reply)>& render,
                    ExitCode invalid_argument_exit) {
  auto client = DaemonClient::open(command);
  if (!client.ok()) return console.fail(client.status(), exit_code_for_reply(client.status()));
  const auto reply = client->request(call, kStatusTimeout);
  if (!reply.ok())
    return console.fail(reply.status(),
                        exit_code_for_request(reply.status(), invalid_argument_exit));
  if (command.json) {
    console.print_json(*reply);
    return ExitCode::kSuccess;
  }
  const Result<std::string> text = render(*reply);
  if (!text.ok()) return console.fail(text.status(), exit_code_for_reply(text.status()));
  console.out << *text;
  return ExitCode::kSuccess;
}

// The text that `render` makes of the parsed reply. kCorrupt: a field is missing or has the wrong type, which
// Boost.JSON reports with exceptions.
template <typename Render>
Result<std::string> render_fields(const std::string& reply, const Render& render) {
  try {
    return render(boost::json::parse(reply));
  } catch (const std::exception& error) {
    return Status(StatusCode::kCorrupt, std::string("invalid reply: ") + error.what());
  }
}

}  // namespace

ExitCode show_status(const CommandLine& command, const Console& console) {
  // The end of a run is an answer. A run that was killed should answer.
  const auto layout = locate_run(command.run_dir);
  if (const view::RunSummary summary = command.socket.empty() && layout.ok() && has_ended(*layout)
                                           ? view::RunView(*layout).summary()
                                           : view::RunSummary();
      summary.has_ended) {
    if (command.json)
      console.print_json(to_json(summary));
    else
      console.out << render_summary(summary, console.style);
    return ExitCode::kSuccess;
  }
  return show_reply(
      command, console, control::GetStatus{},
      [&](const std::string& reply) -> Result<std::string> {
        STOKER_ASSIGN_OR_RETURN(const auto status, control::parse_trainer_status(reply));
        return render_status(status, console.style,
                             command.socket.empty() && layout.ok()
                                 ? view::RunView(*layout).summary()
                                 : view::RunSummary());
      },
      ExitCode::kConfiguration);
}

ExitCode watch_status(const CommandLine& command, const Console& console, milliseconds interval) {
  auto client = DaemonClient::open(command);
  if (!client.ok()) return console.fail(client.status(), exit_code_for_reply(client.status()));
  std::optional<run::RunLayout> maybe_layout = client->maybe_layout();
  auto reply = client->request(control::GetStatus{}, kStatusTimeout);
  for (; reply.ok() && console.out.good();
       reply = client->request(control::GetStatus{}, kStatusTimeout)) {
    const auto status = control::parse_trainer_status(*reply);
    if (!status.ok()) return console.fail(status.status(), exit_code_for_reply(status.status()));
    if (!maybe_layout.has_value() && !status->run_dir.empty())
      maybe_layout.emplace(status->run_dir);
    draw(console, command, *reply, *status, maybe_layout);
    std::this_thread::sleep_for(interval);
  }
  if (reply.ok()) return ExitCode::kIoError;  // our output has no reader any more
  // The socket disappears first; exit_status.json and the lock follow.
  const auto deadline = std::chrono::steady_clock::now() + kStatusTimeout;
  auto state = run::RunState{.phase = run::RunState::Phase::kRunning, .end = std::nullopt};
  while (maybe_layout.has_value() && state.phase == run::RunState::Phase::kRunning &&
         std::chrono::steady_clock::now() < deadline) {
    state = run::read_run_state(*maybe_layout);
    if (state.phase == run::RunState::Phase::kRunning)
      std::this_thread::sleep_for(milliseconds(50));
  }
  if (!state.exit_code()) return console.fail(reply.status(), exit_code_for_reply(reply.status()));
  if (!command.json)
    console.out << render_summary_line(view::RunView(*maybe_layout).summary(), console.style)
                << "\n";
  return static_cast<ExitCode>(*state.exit_code());
}

namespace {

// "26 queue threads (25 stopped, 1 failed)": the rows of one kind.
std::string count_threads(const control::ThreadTable& table, bool queue_threads,
                          const std::string& kind) {
  const auto count = [&](std::optional<ThreadState> maybe_state) {
    return std::ranges::count_if(table.rows, [&](const control::ThreadRow& row) {
      return row.is_queue_thread == queue_threads && (!maybe_state || row.state == *maybe_state);
    });
  };
  std::string ended;
  for (const ThreadState state :
       {ThreadState::kNotStarted, ThreadState::kStopped, ThreadState::kFailed}) {
    if (const auto number = count(state); number > 0)
      ended += (ended.empty() ? "" : ", ") + std::to_string(number) + " " +
               std::string(to_string(state));
  }
  return std::to_string(count(std::nullopt)) + " " + kind +
         (ended.empty() ? "" : " (" + ended + ")");
}

std::string render_threads(const control::ThreadTable& table, const TextStyle& style) {
  constexpr size_t kTimeBegin = 15, kTimeBytes = 8;  // "12:00:00" of format_local_time()
  TextTable text({{.title = "thread", .left = true},
                  {.title = "queue", .left = true},
                  {.title = "operation", .left = true},
                  {.title = "state", .left = true},
                  {.title = "since (" + local_zone() + ")", .can_drop = true},
                  {.title = "for"}});
  for (const control::ThreadRow& row : table.rows) {
    const bool is_time = parse_iso8601(row.since).has_value();
    text.add({printable(row.name), printable(row.queue), printable(row.operation),
              std::string(to_string(row.state)),
              is_time ? format_local_time(row.since).substr(kTimeBegin, kTimeBytes)
                      : printable(row.since),
              format_duration(row.seconds)});
  }
  return text.render(style) + "\n" + count_threads(table, true, "queue threads") + ", " +
         count_threads(table, false, "of stokerd") + ", " + std::to_string(table.library_threads) +
         " of libraries\n";
}

}  // namespace

ExitCode show_threads(const CommandLine& command, const Console& console) {
  return show_reply(
      command, console, control::GetThreads{},
      [&](const std::string& reply) -> Result<std::string> {
        STOKER_ASSIGN_OR_RETURN(const auto table, control::parse_thread_table(reply));
        return render_threads(table, console.style);
      },
      ExitCode::kConfiguration);
}

namespace {

// Throws the exceptions of Boost.JSON if a field is missing or has the wrong type.
std::string render_settings(const boost::json::value& reply, const TextStyle& style) {
  TextTable table({{.title = "setting", .left = true},
                   {.title = "value", .left = true},
                   {.title = "origin", .left = true}});
  for (const boost::json::value& item : reply.at("settings").as_array()) {
    const boost::json::object& setting = item.as_object();
    const auto* const configured = setting.if_contains("configured");
    table.add({text_of(setting.at("key")), text_of(setting.at("value")),
               text_of(setting.at("origin")) +
                   (configured != nullptr ? ", configured: " + text_of(*configured) : "")});
  }
  return table.render(style);
}

}  // namespace

ExitCode show_settings(const CommandLine& command, const Console& console) {
  return show_reply(
      command, console, command.settings,
      [&](const std::string& reply) {
        return render_fields(reply, [&](const boost::json::value& fields) {
          return render_settings(fields, console.style);
        });
      },
      ExitCode::kUsage);
}

namespace {

// Throws the exceptions of Boost.JSON if a field is missing or has the wrong type.
std::string render_reload(const boost::json::value& reply, bool is_dry_run,
                          const TextStyle& style) {
  const std::string done = is_dry_run ? "would be reloaded" : "reloaded";
  const boost::json::value* const changes = reply.as_object().if_contains("changes");
  if (changes == nullptr) return done + "\n";
  if (changes->as_array().empty()) return done + ", no setting changes\n";
  TextTable table({{.title = "setting", .left = true},
                   {.title = "before", .left = true},
                   {.title = "after", .left = true},
                   {.title = "effective", .left = true}});
  for (const boost::json::value& item : changes->as_array())
    table.add({text_of(item.at("key")), text_of(item.at("previous")), text_of(item.at("current")),
               text_of(item.at("effective"))});
  return done + "\n\n" + table.render(style);
}

}  // namespace

ExitCode reload_configuration(const CommandLine& command, const Console& console) {
  return show_reply(
      command, console, control::Reload{.dry_run = command.dry_run},
      [&](const std::string& reply) {
        return render_fields(reply, [&](const boost::json::value& fields) {
          return render_reload(fields, command.dry_run, console.style);
        });
      },
      ExitCode::kConfiguration);
}

ExitCode run_command(const CommandLine& command, const Console& console) {
  return std::visit(CommandRunner(command, console), command.request);
}

namespace {

namespace json = boost::json;

constexpr std::chrono::milliseconds kProfileTimeout{3'600'000};

std::string ms_cell(const json::object& row, const char* name) {
  const auto* const value = row.if_contains(name);
  return value == nullptr ? "" : format_milliseconds(value->to_number<double>());
}

std::string string_field(const json::object& fields, const char* name) {
  const auto* const value = fields.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

// Throws the exceptions of Boost.JSON if a field is missing or has the wrong type.
std::string render_table(const json::object& reply, const TextStyle& style) {
  const json::array& phases = reply.at("phases").as_array();
  const bool has_device =
      !phases.empty() && phases.front().as_object().contains("device_median_ms");
  std::vector<Column> columns = {{"phase", true}, {"median ms"}, {"sum ms"}, {"share"}};
  if (has_device) {
    columns.push_back({"on device\nmedian ms"});
    columns.push_back({"on device\nsum ms"});
  }
  TextTable table(columns);
  const auto add = [&](const std::string& name, const json::object& row, double fraction) {
    std::vector<std::string> cells = {name, ms_cell(row, "median_ms"), ms_cell(row, "sum_ms"),
                                      format_percent(fraction) + " %"};
    if (has_device) {
      cells.push_back(ms_cell(row, "device_median_ms"));
      cells.push_back(ms_cell(row, "device_sum_ms"));
    }
    table.add(std::move(cells));
  };
  for (const json::value& phase : phases) {
    const json::object& row = phase.as_object();
    add(printable(std::string_view(row.at("phase").as_string())), row,
        row.at("share").to_number<double>());
  }
  json::object step_row = reply;
  step_row["sum_ms"] = reply.at("total_ms");
  add("step", step_row, 1);
  return table.render(style);
}

// Formats the answer of stokerd as a table. kCorrupt: the answer is malformed.
Result<std::string> render_profile(const std::string& reply, const TextStyle& style) {
  const auto render = [&style](const json::object& fields) {
    std::string out = "steps " + format_count(fields.at("first_step").to_number<uint64_t>()) +
                      " to " + format_count(fields.at("last_step").to_number<uint64_t>()) + " on " +
                      printable(string_field(fields, "device")) + "\n" +
                      render_table(fields, style) + "\n  " +
                      printable(string_field(fields, "path")) + "\n";
    if (fields.contains("kernels_path"))
      out += "  " + printable(string_field(fields, "kernels_path")) + "\n";
    return out + "  open in https://ui.perfetto.dev or chrome://tracing\n";
  };
  return parse_json_object<std::string>(reply, "profile of stokerd", render);
}

// Copies the trace in profiles/ that has the file name of `named`. A stokerd of another user could
// name any file that this user can read, or put a link there, so neither may be a link.
Status copy_trace(const std::string& named, const run::RunLayout& layout, const std::string& to) {
  namespace fs = std::filesystem;
  const std::string name = fs::path(named).filename().string();
  const std::string from = join_path(layout.profiles_dir(), name);
  const UniqueFd folder(
      ::open(layout.profiles_dir().c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const UniqueFd fd(folder.valid() ? ::openat(folder.get(), name.c_str(),
                                              O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                                   : -1);
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
    const int cause = errno;
    const bool is_link = cause == ELOOP || cause == ENOTDIR;
    return Status(StatusCode::kIoError, Status::from_errno(cause, printable(from)).message() +
                                            (is_link ? " (a link is not followed)" : ""));
  }
  if (!S_ISREG(info.st_mode))
    return Status(StatusCode::kIoError, printable(from) + ": not a regular file; not copied");
  std::error_code error;
  fs::copy_file("/proc/self/fd/" + std::to_string(fd.get()), to,
                fs::copy_options::overwrite_existing, error);
  if (!error) return {};
  return Status(StatusCode::kIoError,
                to + ": " + error.message() + "; the trace is " + printable(from));
}

}  // namespace

ExitCode record_profile(const control::Profile& request, const CommandLine& command,
                        const Console& console) {
  if (const Status error_info = request.validate(); !error_info.ok())
    return console.fail(error_info, ExitCode::kUsage);
  auto client = DaemonClient::open(command);
  if (!client.ok()) return console.fail(client.status(), exit_code_for_reply(client.status()));
  if (!command.json && client->is_paused())
    console.err << "stokerctl: training is paused; the profile starts when it resumes\n";
  const auto reply = request.wait && !command.json
                         ? request_job(*client, request, "profiling", console, kProfileTimeout)
                         : client->request(request, kProfileTimeout);
  if (!reply.ok())
    return console.fail(reply.status(), exit_code_for_request(reply.status(), ExitCode::kUsage));
  if (!request.wait) {
    if (command.json)
      console.print_json(*reply);
    else
      console.out << format_result("started", *reply) << "\n";
    return ExitCode::kSuccess;
  }
  const auto text = render_profile(*reply, console.style);
  if (!text.ok()) return console.fail(text.status(), exit_code_for_reply(text.status()));
  if (command.json)
    console.print_json(*reply);
  else
    console.out << *text;
  if (command.output.empty()) return ExitCode::kSuccess;
  assert(client->maybe_layout().has_value());  // --output excludes --socket
  const Status copied = copy_trace(string_field(json::parse(*reply).as_object(), "path"),
                                   *client->maybe_layout(), command.output);
  return copied.ok() ? ExitCode::kSuccess : console.fail(copied, exit_code_for(copied));
}

}  // namespace stoker::ctl
