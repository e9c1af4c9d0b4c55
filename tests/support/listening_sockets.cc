#include "tests/support/listening_sockets.h"

#include <arpa/inet.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace stoker::test {
namespace {

namespace fs = std::filesystem;

// As in the tables: native words in hexadecimal, of which there are four for IPv6.
std::string numeric(const std::string& words, int family) {
  constexpr size_t kDigits = 8;
  std::array<char, 16> bytes{};
  for (size_t i = 0; i < words.size() / kDigits; ++i) {
    const auto word =
        static_cast<uint32_t>(std::stoul(words.substr(i * kDigits, kDigits), nullptr, 16));
    std::memcpy(&bytes.at(i * sizeof word), &word, sizeof word);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  return ::inet_ntop(family, bytes.data(), text.data(), text.size());
}

std::set<std::string> inodes_of_sockets(const std::string& process) {
  std::set<std::string> inodes;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(process + "/fd", ignored)) {
    const std::string target = fs::read_symlink(entry.path(), ignored);
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

void append_sockets(const std::string& process, const std::string& table, int family,
                    std::vector<ListeningSocket>& sockets) {
  constexpr const char* kListening = "0A";
  const std::set<std::string> inodes = inodes_of_sockets(process);
  std::ifstream file(process + table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state, skipped, inode;
    fields >> number >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) fields >> skipped;
    fields >> inode;
    if (state != kListening || !inodes.contains(inode)) continue;
    const size_t colon = local.find(':');
    sockets.push_back({.address = numeric(local.substr(0, colon), family),
                       .port = std::stoi(local.substr(colon + 1), nullptr, 16)});
  }
}

}  // namespace

std::vector<ListeningSocket> listening_sockets(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::vector<ListeningSocket> sockets;
  append_sockets(process, "/net/tcp", AF_INET, sockets);
  append_sockets(process, "/net/tcp6", AF_INET6, sockets);
  std::error_code ignored;
  for (const auto& thread : fs::directory_iterator(process + "/task", ignored)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;)
      for (const ListeningSocket& socket : listening_sockets(child)) sockets.push_back(socket);
  }
  return sockets;
}

}  // namespace stoker::test
