// GivenKeys: which keys the file or a --set flag names, and where: a default may depend on whether a
// key was given, and a mistake between two keys is shown where one of them stands.
//
// Threads: one object per thread.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "shared/config/mistakes.h"

namespace stoker::config {

class GivenKeys {
 public:
  void add(const std::string& key, const Place& place) { places_.insert_or_assign(key, place); }
  bool contains(std::string_view key) const { return places_.contains(key); }

  // Of the key, or of the nearest section above it that was given; nowhere where none was.
  Place place_of(std::string_view key) const {
    for (;;) {
      if (const auto found = places_.find(key); found != places_.end()) return found->second;
      const size_t dot = key.rfind('.');
      if (dot == std::string_view::npos) return {};
      key = key.substr(0, dot);
    }
  }

 private:
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace stoker::config
