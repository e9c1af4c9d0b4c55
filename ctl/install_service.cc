#include "ctl/install_service.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/run_program.h"

namespace stoker::ctl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "# Written by stokerctl install-service.";
constexpr uint64_t kMaxUnitBytes = 1 << 20;
constexpr std::chrono::minutes kStartTimeout{1};

// Settings that the service manager of a user ignores or fails with: other users, namespaces and capabilities, devices and
// addresses of a cgroup, the system's units and folders.
bool needs_system(std::string_view key) {
  for (const std::string_view start :
       {"Protect", "Private", "Device", "IPAddress", "State", "ReadOnlyPaths", "Capability",
        "Ambient", "RemoveIPC", "User", "Group", "Slice", "Wants"})
    if (key.starts_with(start) && key != "WantedBy") return true;
  return false;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// One setting; empty: it is omitted.
std::string adapt_setting(std::string line, const ServiceUnits& units) {
  const std::string key = line.substr(0, line.find('='));
  if (units.user_units && needs_system(key)) return "";
  if (key == "ExecStart") {
    const size_t end = line.find(' ');
    const size_t name = line.rfind('/', end) + 1;
    line = "ExecStart=" + units.programs + "/" + line.substr(name);
  }
  if (units.user_units) {
    if (line == "WantedBy=multi-user.target") return "WantedBy=default.target";
    // Not %S, which systemd 254 has moved.
    replace_all(line, "%S/stoker/", "%h/.local/state/stoker/");
    replace_all(line, "/etc/stoker/", "%E/stoker/");
    return line;
  }
  if (key == "ProtectHome" && units.in_home) return "ProtectHome=read-only";
  if (units.user != "stoker" && key == "User") return "User=" + units.user;
  if (units.user != "stoker" && key == "Group") return "";  // the one of the user
  return line;
}

bool is_in_home(const fs::path& path) {
  std::error_code error;
  const std::string real = fs::weakly_canonical(path, error).string() + "/";
  for (const char* home : {"/home/", "/root/", "/run/user/"})
    if (real.starts_with(home)) return true;
  return false;
}

// A path that a unit can contain without quotes.
Status check_path(const std::string& path) {
  if (path.find_first_of(" \t\n\"'\\%$;") == path.npos) return {};
  return Status(StatusCode::kInvalidArgument,
                "'" + path + "': a path in a unit cannot have spaces, quotes or any of \\ % $ ;");
}

struct Installation {
  fs::path prefix;       // of the tree with the units
  std::string programs;  // folder of the programs that a unit starts
};

// The console scripts of a Python environment start stokerctl with their own path, and verify PyTorch at each start.
Result<Installation> find_installation(const std::string& invoked_as) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  Installation found{.prefix = self.parent_path().parent_path(),
                     .programs = self.parent_path().string()};
  const fs::path folder = fs::absolute(invoked_as, error).lexically_normal().parent_path();
  if (invoked_as.find('/') != invoked_as.npos && ::access((folder / "stokerd").c_str(), X_OK) == 0)
    found.programs = folder.string();
  if (::access((found.programs + "/stokerd").c_str(), X_OK) != 0)
    return Status(StatusCode::kNotFound, found.programs + " has no stokerd");
  STOKER_RETURN_IF_ERROR(check_path(found.programs));
  return found;
}

// Whether the user can start stokerd: reach its folders, and load its libraries.
Status try_as(const passwd& user, const Installation& found) {
  const std::string program = found.programs + "/stokerd";
  Status started = run_program(
      {"setpriv", "--reuid", std::to_string(user.pw_uid), "--regid", std::to_string(user.pw_gid),
       "--init-groups", "--", "/bin/sh", "-c", "cd / && exec \"$0\" --version >/dev/null", program},
      "", kStartTimeout, {});
  if (started.ok()) return started;
  return Status(StatusCode::kPermission,
                std::string("user '") + user.pw_name + "' cannot start " + program +
                    "; permit it, name the owner with --service-user, or install stoker in an "
                    "environment below /opt");
}

Result<ServiceUnits> check_service(const CommandLine& command, const Installation& found) {
  ServiceUnits units{
      .programs = found.programs, .user = command.service_user, .user_units = command.user_units};
  const fs::path programs(found.programs);
  units.in_home =
      is_in_home(programs) || is_in_home(found.prefix) || is_in_home(programs / "python3");
  if (units.user_units) return units;
  const bool is_known = found.prefix == "/usr" || found.prefix == "/usr/local";
  if (is_known && command.output.empty())
    return Status(StatusCode::kAlreadyExists,
                  "systemd reads the units in " + (found.prefix / "lib/systemd/system").string() +
                      " already; use systemctl enable --now stokerd@NAME");
  if (::geteuid() != 0)
    return Status(StatusCode::kPermission,
                  "units of the system need root; use sudo, or --user for units of your own");
  const passwd* const user = ::getpwnam(units.user.c_str());
  if (user == nullptr)
    return Status(StatusCode::kNotFound,
                  "there is no user '" + units.user + "'; run systemd-sysusers " +
                      (found.prefix / "lib/sysusers.d/stoker.conf").string() +
                      ", or name another one with --service-user");
  STOKER_RETURN_IF_ERROR(try_as(*user, found));
  return units;
}

std::string folder_of_units(const CommandLine& command) {
  if (!command.output.empty()) return command.output;
  if (!command.user_units) return "/etc/systemd/system";
  const char* const config = std::getenv("XDG_CONFIG_HOME");
  const char* const home = std::getenv("HOME");
  if (config != nullptr && *config == '/') return std::string(config) + "/systemd/user";
  return std::string(home == nullptr ? "" : home) + "/.config/systemd/user";
}

// Keeps a unit that the user has written.
Status write_unit(const std::string& path, const std::string& text) {
  const auto present = read_file(path, kMaxUnitBytes);
  if (!present.ok() && present.status().code() != StatusCode::kNotFound) return present.status();
  if (present.ok() && !present->starts_with(kMark))
    return Status(StatusCode::kAlreadyExists,
                  path + ": was not written by stokerctl install-service; remove or rename it");
  return write_file_atomically(default_file_system(), path, text);
}

Result<std::vector<std::string>> write_units(const CommandLine& command, const Installation& found,
                                             const ServiceUnits& units) {
  const std::string folder = folder_of_units(command);
  std::vector<std::string> names{"stokerd@.service", "stoker-eval@.service"};
  if (!units.user_units) names.push_back("system-stoker.slice");
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), folder));
  std::vector<std::string> written;
  for (const std::string& name : names) {
    const std::string source = (found.prefix / "lib/systemd/system" / name).string();
    STOKER_ASSIGN_OR_RETURN(const std::string unit, read_file(source, kMaxUnitBytes));
    written.push_back(folder + "/" + name);
    STOKER_RETURN_IF_ERROR(write_unit(written.back(), adapt_unit(unit, units)));
  }
  return written;
}

}  // namespace

std::string adapt_unit(std::string_view unit, const ServiceUnits& units) {
  std::string text = std::string(kMark) + "\n", comments;
  // What is before the first section names the folders of a system's unit.
  bool is_header = units.user_units;
  for (size_t at = 0; at < unit.size();) {
    const size_t end = std::min(unit.find('\n', at), unit.size());
    const std::string line(unit.substr(at, end - at));
    at = end + 1;
    if (line.starts_with('[')) is_header = false;
    if (is_header) continue;
    if (line.starts_with('#')) {
      comments += line + "\n";
      continue;
    }
    const std::string adapted = line.find('=') == line.npos ? line : adapt_setting(line, units);
    // The comment of a setting that is omitted goes with it.
    if (!adapted.empty() || line.empty()) text += comments + adapted + "\n";
    comments.clear();
  }
  return text;
}

ExitCode install_service(const CommandLine& command, const Console& console) {
  const auto install = [&]() -> Status {
    STOKER_ASSIGN_OR_RETURN(const Installation found, find_installation(command.invoked_as));
    STOKER_ASSIGN_OR_RETURN(const ServiceUnits units, check_service(command, found));
    STOKER_ASSIGN_OR_RETURN(const auto written, write_units(command, found, units));
    for (const std::string& path : written) console.out << "Wrote " << path << "\n";
    const std::string manager = units.user_units ? "systemctl --user" : "systemctl";
    console.out << "Put a configuration into "
                << (units.user_units ? "~/.config/stoker" : "/etc/stoker") << "/NAME.yaml, such as "
                << (found.prefix / "share/stoker/config/demo.yaml").string() << ", and run:\n  "
                << manager << " daemon-reload && " << manager
                << " enable --now stokerd@NAME stoker-eval@NAME\n";
    if (units.user_units)
      console.out << "For a run that continues after you log out: loginctl enable-linger\n";
    return {};
  };
  const Status status = install();
  return status.ok() ? ExitCode::kSuccess : console.fail(status, exit_code_for(status));
}

}  // namespace stoker::ctl
