// ConfigErrors: collects all errors of a configuration so that they are reported together.
//
// Threads: one object per thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker::config {

// The location of a value: in the file, in a --set option, or none (line 0, flag -1).
struct SourceLocation {
  int line = 0;    // from 1
  int column = 0;  // from 1, in bytes
  int flag = -1;   // index of the --set option
};

// The keys in the file or the --set options, with their locations. A default can depend on whether
// a key is given, and an error about two keys is reported at one of them.
class ExplicitKeys {
 public:
  void add(const std::string& key, const SourceLocation& location) {
    locations_.insert_or_assign(key, location);
  }
  bool contains(std::string_view key) const { return locations_.contains(key); }
  // The location of the key, or of the nearest given section that contains it.
  SourceLocation location_of(std::string_view key) const;

 private:
  std::map<std::string, SourceLocation, std::less<>> locations_;
};

class ConfigErrors {
 public:
  // `flags` are the texts of the --set options, "train.max_steps=10".
  ConfigErrors(std::string file, const std::vector<std::string>& flags);

  // `key`: the full name, "train.max_steps"; empty if the error belongs to no key. `message` says
  // what is wrong and what to do.
  void add(const SourceLocation& location, std::string_view key, std::string_view message) {
    add(location, key, message, key);
  }
  // As above, but the error belongs to `marked_key`: an unknown key is reported under its section.
  void add(const SourceLocation& location, std::string_view key, std::string_view message,
           std::string_view marked_key);
  // Makes has_error_for(key) true without adding a message.
  void mark(std::string_view key) { keys_.emplace(key); }

  bool empty() const { return count_ == 0; }
  size_t count() const { return count_; }
  // True if `key`, or a section that contains it, has an error. Consequential errors are not
  // reported.
  bool has_error_for(std::string_view key) const;
  // True if a key in `section` has an error.
  bool has_error_in(const std::string& section) const;
  // True if `message` contains the full name of a key that has an error, or its name in `section`
  // ("data.train."): then it can be a consequence of that error.
  bool names_key_with_error(std::string_view message, const std::string& section = {}) const;
  // kInvalidArgument, one line per error: first errors in the file by location, then those of --set
  // options, then those without a location.
  Status status() const;

 private:
  struct Error {
    SourceLocation location;
    std::string line;
  };
  const std::string file_;
  const std::vector<std::string> flags_;
  std::vector<Error> errors_;
  std::set<std::string, std::less<>> keys_;
  size_t count_ = 0;  // including those that are not stored
};

// The words of a message: "a, b and c" with the last separator " and ".
std::string join_words(const auto& words, std::string_view last_separator) {
  std::string text;
  size_t i = 0;
  for (const auto& word : words) {
    if (i > 0) text += i + 1 == words.size() ? last_separator : std::string_view(", ");
    text += word;
    ++i;
  }
  return text;
}

// User text for a message: quoted, on one line, shortened.
std::string quoted(std::string_view text);
std::string one_line(std::string_view text, size_t max_bytes);

// Edit distance: the number of insertions, deletions, substitutions and swaps of neighbors that
// turn one word into the other.
size_t edit_distance(std::string_view a, std::string_view b);
// The closest of `words` (the first one if equal). Empty if none has a distance within a third of
// the longer word's length.
std::string closest_match(std::string_view typed, const std::vector<std::string>& words);
// "; did you mean 'word'?", or empty.
std::string did_you_mean(std::string_view typed, const std::vector<std::string>& words);

}  // namespace stoker::config
