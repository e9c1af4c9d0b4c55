// Matching the paths of a dataset, compared with fnmatch(3).
#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/cpu_time.h"
#include "bench/library_benches.h"
#include "shared/base/glob.h"

namespace stoker::bench {
namespace {

using Paths = std::vector<std::string>;

Result<double> nanoseconds_per_path(const std::function<bool(const std::string&)>& matches,
                                    const Paths& paths, std::chrono::nanoseconds time) {
  const auto work = [&]() -> Status {
    return std::ranges::all_of(paths, matches)
               ? Status()
               : Status(StatusCode::kInternal, "a path does not match");
  };
  STOKER_ASSIGN_OR_RETURN(const double seconds, cpu_time_per_call(work, time));
  return seconds * 1e9 / static_cast<double>(paths.size());
}

}  // namespace

Benchmark library_glob() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    const auto paths = std::make_shared<Paths>();
    for (int i = 0; i < (options.quick ? 10 : 10'000); ++i) {
      const std::string folder = "n" + std::to_string(10'000'000 + i % 1000);
      paths->push_back("train/" + folder + "/" + folder + "_" + std::to_string(i) + ".JPEG");
    }
    STOKER_ASSIGN_OR_RETURN(const PathGlob glob, PathGlob::parse("**/*.{jpg,png,JPEG}"));
    const auto measure = [=, time = options.run_time()](auto matches) {
      return [=] { return nanoseconds_per_path(matches, *paths, time); };
    };
    // fnmatch() has no braces and no "**": its '*' can match slashes, but then hidden folders too.
    const auto with_fnmatch = [](const std::string& path) {
      return std::ranges::any_of(std::vector{"*.jpg", "*.png", "*.JPEG"}, [&](const char* pattern) {
        return ::fnmatch(pattern, path.c_str(), FNM_NOESCAPE | FNM_PERIOD) == 0;
      });
    };
    return std::vector<Trial>{
        {"**/*.{jpg,png,JPEG}",
         "ns a path",
         measure([glob](const std::string& path) { return glob.matches(path); }),
         {{"fnmatch of three patterns", measure(with_fnmatch)}}}};
  };
  return {"glob", "paths matched by a glob, compared with fnmatch", prepare};
}

}  // namespace stoker::bench
