// Mistakes: everything wrong with a configuration, collected, so that a user sees all of it at once.
//
// Threads: one object per thread.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker::config {

// Where something was written: in the file, in one of the --set flags, or nowhere (line 0, flag -1).
struct Place {
  int line = 0;    // from 1
  int column = 0;  // from 1, in bytes
  int flag = -1;   // index of the --set flag
};

class Mistakes {
 public:
  // `flags` are the texts of the --set flags, "train.steps=10".
  Mistakes(std::string file, const std::vector<std::string>& flags);

  // `key`: the full name, "train.steps"; empty where the mistake belongs to no key. `what` says what is
  // wrong and what to do.
  void add(const Place& place, std::string_view key, std::string_view what);

  bool empty() const { return count_ == 0; }
  size_t count() const { return count_; }
  // Whether `key`, or a section that holds it, has a mistake: what follows from it is not reported.
  bool touches(std::string_view key) const;
  // kInvalidArgument, a line each: the file's in its order, then the flags', then those without a place.
  Status status() const;

 private:
  struct Mistake {
    Place place;
    std::string line;
  };
  const std::string file_;
  const std::vector<std::string> flags_;
  std::vector<Mistake> kept_;
  std::set<std::string, std::less<>> keys_;
  size_t count_ = 0;  // of all, also of those that are not kept
};

// Text of a user for a message: quoted, on one line, not longer than a glance.
std::string quoted(std::string_view text);
std::string one_line(std::string_view text, size_t max_bytes);

}  // namespace stoker::config
