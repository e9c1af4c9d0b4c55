#include "shared/dataset/class_split.h"

#include <algorithm>
#include <cassert>
#include <string_view>

namespace stoker::dataset {
namespace {

std::string_view class_of(std::string_view name) { return name.substr(0, name.find('/')); }

}  // namespace

ClassSplit::ClassSplit(const FileTable& files, const SplitFraction& split) {
  uint64_t samples = 0;
  for (size_t begin = 0, end = 0; begin < files.size(); begin = end) {
    const std::string_view name = class_of(files.name(begin));
    while (end < files.size() && class_of(files.name(end)) == name) ++end;
    const SampleRange range = split.of_count(end - begin);
    samples += range.size();
    classes_.push_back(
        {.name = std::string(name), .files_begin = begin + range.begin, .samples_end = samples});
  }
}

ClassSplit::Location ClassSplit::location(uint64_t sample) const {
  assert(sample < size());
  const auto found =
      std::upper_bound(classes_.begin(), classes_.end(), sample,
                       [](uint64_t wanted, const Class& in) { return wanted < in.samples_end; });
  const uint64_t before = found == classes_.begin() ? 0 : std::prev(found)->samples_end;
  return {.file = found->files_begin + (sample - before),
          .of_class = static_cast<uint64_t>(found - classes_.begin())};
}

std::vector<std::string> ClassSplit::names() const {
  std::vector<std::string> names;
  for (const Class& one : classes_) names.push_back(one.name);
  return names;
}

uint64_t ClassSplit::classes_without_samples() const {
  uint64_t count = 0, before = 0;
  for (const Class& one : classes_) {
    if (one.samples_end == before) ++count;
    before = one.samples_end;
  }
  return count;
}

}  // namespace stoker::dataset
