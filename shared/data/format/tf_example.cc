#include "shared/data/format/tf_example.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "shared/base/protobuf_wire.h"
#include "shared/base/status.h"
#include "shared/data/files/byte_source.h"

namespace stoker::data::format {
namespace {

// WireReader: iterates over the fields of one serialized protobuf message. The values of fields
// that are not requested are not read.
//
// Threads: one at a time.
// Errors:  kCorrupt with the byte offset in the source; those of the source.
struct WireField : protobuf::FieldHead {
  uint64_t begin = 0;  // of the value, in the source
};

class WireReader {
 public:
  explicit WireReader(files::ByteSource& source) : WireReader(source, 0, source.size()) {}
  // A message in a part of the source.
  WireReader(files::ByteSource& source, uint64_t begin, uint64_t size)
      : source_(source), at_(begin), end_(begin + size) {}

  // The next field; false at the end of the message.
  Result<bool> next(WireField& field);

 private:
  files::ByteSource& source_;
  uint64_t at_;
  const uint64_t end_;
};

Status broken(uint64_t at, const std::string& what) {
  return Status(StatusCode::kCorrupt, what + " at byte " + std::to_string(at));
}

Result<bool> WireReader::next(WireField& field) {
  if (at_ == end_) return false;
  STOKER_ASSIGN_OR_RETURN(std::span<const std::byte> rest,
                          source_.peek(at_, std::min<uint64_t>(protobuf::kMaxHead, end_ - at_)));
  const size_t looked = rest.size();
  if (const char* const wrong = protobuf::take_head(rest, field)) return broken(at_, wrong);
  field.begin = at_ + looked - rest.size();
  if (field.size > end_ - field.begin) return broken(at_, "a field goes past its message");
  at_ = field.begin + field.size;
  return true;
}

using Type = protobuf::WireType;
using List = FeatureLocation::List;

static_assert(std::endian::native == std::endian::little, "floats are copied as they lie");

constexpr size_t kMaxInts = size_t{1} << 25;                           // per list: 256 MiB
constexpr List kLists[] = {List::kBytes, List::kFloats, List::kInts};  // by field number - 1

Status no_example(const std::string& what) {
  return Status(StatusCode::kCorrupt, "invalid tf.train.Example: " + what);
}

// Calls `take` for each field whose number is at most `max_field`.
template <typename Take>
Status each_field(WireReader message, uint64_t max_field, const Take& take) {
  for (WireField field;;) {
    STOKER_ASSIGN_OR_RETURN(const bool more, message.next(field));
    if (!more) return {};
    if (field.number <= max_field) STOKER_RETURN_IF_ERROR(take(field));
  }
}

class FeatureSearch {
 public:
  FeatureSearch(files::ByteSource& source, std::span<const std::string> names,
                std::span<FeatureLocation> locations)
      : source_(source), names_(names), locations_(locations) {}

  Status run() {
    return each_field(WireReader(source_), 2, [this](const WireField& field) -> Status {
      if (field.type != Type::kBytes) return no_example("its features are not a message");
      has_steps_ = field.number == 2;
      return features(field);
    });
  }

 private:
  WireReader in(const WireField& message) const {
    return WireReader(source_, message.begin, message.size);
  }

  Status features(const WireField& message) {
    return each_field(in(message), 1, [this](const WireField& field) -> Status {
      if (field.type != Type::kBytes) return no_example("a feature is not a message");
      return entry(field);
    });
  }

  // Parses one map entry: a key and its value, in either order.
  Status entry(const WireField& message) {
    WireField key, value;
    STOKER_RETURN_IF_ERROR(each_field(in(message), 2, [&](const WireField& field) -> Status {
      if (field.type != Type::kBytes)
        return no_example("a feature's name or value is not a message");
      (field.number == 1 ? key : value) = field;
      return {};
    }));
    STOKER_ASSIGN_OR_RETURN(const size_t name, name_at(key));
    if (name == names_.size() || value.size == 0) return {};
    return has_steps_ ? take(name, List::kSteps, value) : feature(name, value);
  }

  // Index of the name that equals the key; names_.size() if there is none.
  Result<size_t> name_at(const WireField& key) {
    const auto could_be = [&key](const std::string& name) { return name.size() == key.size; };
    if (std::ranges::none_of(names_, could_be)) return names_.size();
    STOKER_ASSIGN_OR_RETURN(const auto bytes, source_.peek(key.begin, key.size));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return static_cast<size_t>(std::ranges::find(names_, text) - names_.begin());
  }

  Status feature(size_t name, const WireField& message) {
    return each_field(in(message), 3, [&](const WireField& field) -> Status {
      if (field.type != Type::kBytes) return no_example("a list of values is not a message");
      return take(name, kLists[field.number - 1], field);
    });
  }

  // The same name can be requested more than once.
  Status take(size_t name, List list, const WireField& values) {
    for (size_t i = name; i < names_.size(); ++i) {
      if (names_[i] != names_[name]) continue;
      if (values.size == 0) {
        locations_[i].is_empty = true;
        continue;
      }
      if (locations_[i].list != List::kMissing)
        return no_example("feature '" + names_[name] + "' occurs twice");
      locations_[i] = {.list = list, .begin = values.begin, .size = values.size};
    }
    return {};
  }

  files::ByteSource& source_;
  const std::span<const std::string> names_;
  const std::span<FeatureLocation> locations_;
  bool has_steps_ = false;  // whether the current features are a FeatureLists message
};

Status append_packed(std::span<const std::byte> packed, std::vector<float>& values) {
  if (packed.size() % sizeof(float) != 0) return no_example("numbers are truncated");
  const size_t before = values.size();
  values.resize(before + packed.size() / sizeof(float));
  if (!packed.empty()) std::memcpy(values.data() + before, packed.data(), packed.size());
  return {};
}

Status append_int(uint64_t value, std::vector<int64_t>& values) {
  if (values.size() == kMaxInts)
    return no_example("more than " + std::to_string(kMaxInts) + " numbers in a list");
  values.push_back(static_cast<int64_t>(value));
  return {};
}

Status append_packed(std::span<const std::byte> packed, std::vector<int64_t>& values) {
  while (!packed.empty()) {
    uint64_t value = 0;
    if (!protobuf::take_varint(packed, value)) return no_example("a number is invalid");
    STOKER_RETURN_IF_ERROR(append_int(value, values));
  }
  return {};
}

// Appends the values of a list.
Status append(std::span<const std::byte> list, std::vector<float>& values) {
  files::MemorySource source(list);
  return each_field(WireReader(source), 1, [&](const WireField& field) -> Status {
    if (field.type != Type::kBytes && field.type != Type::kFixed32)
      return no_example("a value of a list is not a float");
    return append_packed(list.subspan(field.begin, field.size), values);
  });
}

Status append(std::span<const std::byte> list, std::vector<int64_t>& values) {
  files::MemorySource source(list);
  return each_field(WireReader(source), 1, [&](const WireField& field) -> Status {
    if (field.type == Type::kVarint) return append_int(field.varint, values);
    if (field.type != Type::kBytes) return no_example("a value of a list is not an integer");
    return append_packed(list.subspan(field.begin, field.size), values);
  });
}

// Appends the values of one time step. `list`: type of the previous steps.
Status append_step(std::span<const std::byte> step, List& list, std::vector<float>& floats,
                   std::vector<int64_t>& ints) {
  files::MemorySource source(step);
  return each_field(WireReader(source), 3, [&](const WireField& field) -> Status {
    if (field.type != Type::kBytes) return no_example("a list of values is not a message");
    if (field.size == 0) return {};
    const List type = kLists[field.number - 1];
    if (type == List::kBytes)
      return Status(StatusCode::kCorrupt, "must have numbers in its steps, got bytes");
    if (list != List::kMissing && list != type)
      return Status(StatusCode::kCorrupt, "has floats in some steps and integers in others");
    list = type;
    const auto values = step.subspan(field.begin, field.size);
    return type == List::kFloats ? append(values, floats) : append(values, ints);
  });
}

}  // namespace

Status find_features(files::ByteSource& example, std::span<const std::string> names,
                     std::span<FeatureLocation> locations) {
  assert(names.size() == locations.size());
  std::ranges::fill(locations, FeatureLocation());
  return FeatureSearch(example, names, locations).run();
}

Result<ValueLocation> find_one_bytes(files::ByteSource& example, const FeatureLocation& location) {
  ValueLocation found;
  uint64_t values = 0;
  const WireReader list(example, location.begin, location.size);
  STOKER_RETURN_IF_ERROR(each_field(list, 1, [&](const WireField& field) -> Status {
    if (field.type != Type::kBytes) return no_example("a value of a list is not bytes");
    found = {.begin = field.begin, .size = field.size};
    ++values;
    return {};
  }));
  if (values == 1) return found;
  return Status(StatusCode::kCorrupt, "must have one value, got " + std::to_string(values));
}

namespace {

Status append_texts(std::span<const std::byte> list, char separator, std::string& texts) {
  files::MemorySource source(list);
  return each_field(WireReader(source), 1, [&](const WireField& field) -> Status {
    if (field.type != Type::kBytes) return no_example("a value of a list is not bytes");
    const auto bytes = list.subspan(field.begin, field.size);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (separator == ' ' && (text == "<S>" || text == "</S>")) return {};
    if (!texts.empty()) texts += separator;
    texts += text;
    return {};
  });
}

}  // namespace

Status decode_texts(std::span<const std::byte> values, FeatureLocation::List list,
                    std::string& texts) {
  texts.clear();
  if (list == List::kBytes) return append_texts(values, '\n', texts);
  if (list != List::kSteps)
    return Status(StatusCode::kCorrupt, "must be text, got a list of numbers");
  files::MemorySource source(values);
  return each_field(WireReader(source), 1, [&](const WireField& step) -> Status {
    if (step.type != Type::kBytes) return no_example("a step's feature is not a message");
    const auto bytes = values.subspan(step.begin, step.size);
    files::MemorySource feature(bytes);
    return each_field(WireReader(feature), 3, [&](const WireField& field) -> Status {
      if (field.type != Type::kBytes || field.number != 1)
        return Status(StatusCode::kCorrupt, "must have texts in its steps, got numbers");
      return append_texts(bytes.subspan(field.begin, field.size), ' ', texts);
    });
  });
}

Status decode_floats(std::span<const std::byte> list, std::vector<float>& values) {
  values.clear();
  return append(list, values);
}

Status decode_ints(std::span<const std::byte> list, std::vector<int64_t>& values) {
  values.clear();
  return append(list, values);
}

Result<List> decode_steps(std::span<const std::byte> steps, uint64_t values_per_step,
                          std::vector<float>& floats, std::vector<int64_t>& ints) {
  floats.clear();
  ints.clear();
  List list = List::kMissing;
  uint64_t step = 0;
  files::MemorySource source(steps);
  const auto take_step = [&](const WireField& field) -> Status {
    if (field.type != Type::kBytes) return no_example("a step's feature is not a message");
    const size_t before = floats.size() + ints.size();
    STOKER_RETURN_IF_ERROR(append_step(steps.subspan(field.begin, field.size), list, floats, ints));
    const uint64_t count = floats.size() + ints.size() - before;
    if (values_per_step == 0) values_per_step = count;
    if (count != values_per_step)
      return Status(StatusCode::kCorrupt,
                    "must have " + std::to_string(values_per_step) + " numbers in each step, got " +
                        std::to_string(count) + " in step " + std::to_string(step));
    ++step;
    return {};
  };
  STOKER_RETURN_IF_ERROR(each_field(WireReader(source), 1, take_step));
  return list;
}

}  // namespace stoker::data::format
