#include "bench/python_baseline.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace stoker::bench {
namespace {

constexpr size_t kMaxLineLength = 100;

Result<pid_t> spawn(const std::vector<std::string>& command, int socket) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  pid_t pid = -1;
  const int error =
      ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Status::from_errno(error, "start " + command[0]);
  return pid;
}

}  // namespace

std::optional<std::string> find_named_python() {
  const char* const python = std::getenv("STOKER_PYTHON");
  if (python == nullptr || *python == '\0') return std::nullopt;
  return python;
}

std::shared_ptr<PythonBaseline> find_python_baseline(const std::string& benchmark,
                                                     const std::string& python,
                                                     const std::string& script,
                                                     const std::vector<std::string>& arguments) {
  auto started = PythonBaseline::start(python, script, arguments);
  if (started.ok()) return *std::move(started);
  std::fprintf(stderr, "%s: no baseline: %s\n", benchmark.c_str(),
               started.status().to_string().c_str());
  return nullptr;
}

Result<std::shared_ptr<PythonBaseline>> PythonBaseline::start(
    const std::string& python, const std::string& script,
    const std::vector<std::string>& arguments) {
  std::vector<std::string> command{python, STOKER_BENCH_FOLDER "/" + script};
  command.insert(command.end(), arguments.begin(), arguments.end());
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    return Status::from_errno(errno, "socketpair");
  UniqueFd own_socket(sockets[0]);
  UniqueFd child_socket(sockets[1]);
  STOKER_ASSIGN_OR_RETURN(const pid_t pid, spawn(command, child_socket.get()));
  std::shared_ptr<PythonBaseline> baseline(new PythonBaseline(pid, std::move(own_socket)));
  child_socket.reset();  // so that the end of the child closes the socket
  const auto greeting = baseline->read_number();
  if (!greeting.ok())
    return Status(StatusCode::kNotFound, python + " " + script + " did not start");
  baseline->greeting_ = *greeting;
  return baseline;
}

PythonBaseline::~PythonBaseline() {
  socket_.reset();
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
}

Result<double> PythonBaseline::request(std::string_view line) {
  const std::string request = std::string(line) + '\n';
  if (::send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    return Status(StatusCode::kClosed, "the Python baseline has exited");
  return read_number();
}

// Reads a line with one number.
Result<double> PythonBaseline::read_number() {
  std::string line;
  char next = 0;
  while (line.size() < kMaxLineLength && ::read(socket_.get(), &next, 1) == 1) {
    if (next != '\n') {
      line += next;
      continue;
    }
    double number = 0;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), number);
    if (parsed.ec == std::errc() && parsed.ptr == line.data() + line.size()) return number;
    return Status(StatusCode::kCorrupt,
                  "the Python baseline printed '" + line + "' instead of a number");
  }
  return Status(StatusCode::kClosed, "the Python baseline has exited");
}

}  // namespace stoker::bench
