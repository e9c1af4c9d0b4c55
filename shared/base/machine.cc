#include "shared/base/machine.h"

#include <sys/utsname.h>

#include <fstream>
#include <map>

#include "shared/base/cgroup.h"
#include "shared/base/utf8.h"

namespace stoker {
namespace {

utsname kernel() {
  utsname names{};
  [[maybe_unused]] const int ignored = ::uname(&names);  // fails for invalid addresses only
  return names;
}

}  // namespace

std::string describe_processor(const std::string& cpuinfo) {
  std::ifstream file(cpuinfo);
  std::map<std::string, std::string> fields;  // of the first core
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos)
      fields[line.substr(0, line.find_first_of("\t:"))] = line.substr(colon + 2);
  }
  std::string text = std::to_string(num_usable_cores()) + " x ";
  // Other architectures have no such line.
  text += fields["model name"].empty() ? kernel().machine : fields["model name"];
  if (!fields["cpu family"].empty())
    text += ", family " + fields["cpu family"] + ", model " + fields["model"];
  return printable(text);
}

std::string identify_boot(const std::string& boot_id) {
  std::ifstream file(boot_id);
  std::string boot;
  file >> boot;
  return printable(boot.empty() ? std::string(kernel().nodename) : boot);
}

std::string describe_system(const std::string& os_release) {
  constexpr std::string_view kKey = "PRETTY_NAME=";
  std::ifstream file(os_release);
  std::string text;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kKey)) text = line.substr(kKey.size());
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
      text.back() == text.front())
    text = text.substr(1, text.size() - 2);
  const utsname names = kernel();
  return printable(text + (text.empty() ? "" : ", ") + names.sysname + " " + names.release);
}

}  // namespace stoker
