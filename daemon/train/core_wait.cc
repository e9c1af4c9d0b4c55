#include "daemon/train/core_wait.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace stoker::train {
namespace {

// Threads that only start and end with the others, such as those of pthreadpool, do not compute.
constexpr double kMinRan = 0.01;

std::string name_of_thread(const std::string& task) {
  std::ifstream file(task + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

std::map<std::string, CoreWait::Times> CoreWait::measure() const {
  std::map<std::string, Times> threads;
  if (name_.empty()) return threads;
  std::error_code error;
  for (std::filesystem::directory_iterator task(tasks_, error), end; !error && task != end;
       task.increment(error)) {
    const std::string path = task->path().string();
    if (name_of_thread(path) != name_) continue;
    std::ifstream file(path + "/schedstat");  // "nanoseconds on a core, nanoseconds ready, slices"
    double ran = 0, waited = 0;
    if (file >> ran >> waited)
      threads[task->path().filename().string()] = {.ran = ran / 1e9, .waited = waited / 1e9};
  }
  return threads;
}

void CoreWait::begin(std::chrono::nanoseconds now, pid_t thread) {
  began_ = now;
  name_ = name_of_thread(tasks_ + '/' + std::to_string(thread));
  before_ = measure();
}

std::optional<CoreShortage> CoreWait::check(std::chrono::nanoseconds now) {
  if (now - began_ < window_) return std::nullopt;
  const double elapsed = std::chrono::duration<double>(now - began_).count();
  CoreShortage found;
  Times total;
  std::map<std::string, Times> threads = measure();
  for (const auto& [thread, times] : threads) {
    const auto before = before_.find(thread);
    // One that was created since then has zeros.
    const Times start = before == before_.end() ? Times() : before->second;
    const double ran = times.ran - start.ran, waited = times.waited - start.waited;
    if (ran < kMinRan * elapsed) continue;
    ++found.num_threads;
    total.ran += ran;
    total.waited += waited;
    found.waited = std::max(found.waited, waited / elapsed);
  }
  began_ = now;
  before_ = std::move(threads);
  if (found.waited < kMinWaited) return std::nullopt;
  const double share = total.ran / (total.ran + total.waited);
  found.num_cores = static_cast<size_t>(
      std::max(1.0, std::round(share * static_cast<double>(found.num_threads))));
  return found;
}

}  // namespace stoker::train
