#include "shared/data/format/tfrecord_index.h"

#include <bit>
#include <cassert>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "shared/base/hash.h"
#include "shared/data/file_kind.h"

namespace stoker::data::format {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are read as they lie");

constexpr size_t kLengthBytes = 8;

template <typename T>
T number_at(std::span<const std::byte> bytes, size_t at) {
  T number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

Status wrong(const char* what) { return Status(StatusCode::kCorrupt, what); }

}  // namespace

Result<uint64_t> frame_length(std::span<const std::byte> head) {
  assert(head.size() >= kFrameHead);
  if (number_at<uint32_t>(head, kLengthBytes) != masked_crc32c(head.first(kLengthBytes)))
    return wrong("the checksum of its length is wrong");
  return number_at<uint64_t>(head, 0);
}

Result<std::span<const std::byte>> framed_data(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHead + kFrameTail) return wrong("truncated");
  STOKER_ASSIGN_OR_RETURN(const uint64_t length, frame_length(bytes));
  if (length > bytes.size() - kFrameHead - kFrameTail) return wrong("longer than it was");
  const auto data = bytes.subspan(kFrameHead, length);
  if (number_at<uint32_t>(bytes, kFrameHead + length) != masked_crc32c(data))
    return wrong("the checksum of its data is wrong; the file is corrupt");
  return data;
}

namespace {

using List = FeatureLocation::List;

// Number of values per time step; 0: any.
uint64_t find_values_per_step(const record::SampleSpec& spec, size_t name) {
  return spec.is_sequence() ? spec.values_per_step(name) : 0;
}

}  // namespace

Status ExampleValues::find(std::span<const std::byte> example, const record::SampleSpec& spec) {
  const size_t names = spec.names.size();
  example_ = example;
  locations_.resize(names);
  ints_.resize(names);
  floats_.resize(names);
  files::MemorySource source(example_);
  return find_features(source, spec.names, locations_);
}

Result<record::FieldValue> ExampleValues::value(const record::SampleSpec& spec, size_t name) {
  auto value = decode(spec, name);
  if (value) return value;
  return value.status().with_context("feature '" + spec.names[name] + "'");
}

Result<record::FieldValue> ExampleValues::decode(const record::SampleSpec& spec, size_t name) {
  const FeatureLocation& location = locations_[name];
  const auto list = example_.subspan(location.begin, location.size);
  List type = location.list;
  if (spec.has_captions() && name == 1 && type != List::kMissing) {
    STOKER_RETURN_IF_ERROR(decode_texts(list, type, texts_));
    return record::FieldValue(std::as_bytes(std::span(texts_)));
  }
  if (type == List::kFloats) STOKER_RETURN_IF_ERROR(decode_floats(list, floats_[name]));
  if (type == List::kInts) STOKER_RETURN_IF_ERROR(decode_ints(list, ints_[name]));
  if (type == List::kSteps) {
    STOKER_ASSIGN_OR_RETURN(
        type, decode_steps(list, find_values_per_step(spec, name), floats_[name], ints_[name]));
  }
  if (type == List::kFloats) return record::FieldValue(record::FieldFloats(floats_[name]));
  if (type == List::kInts) return record::FieldValue(record::FieldInts(ints_[name]));
  if (type == List::kMissing) return record::FieldValue();
  files::MemorySource source(example_);
  STOKER_ASSIGN_OR_RETURN(const ValueLocation one, find_one_bytes(source, location));
  return record::FieldValue(record::FieldBytes(example_.subspan(one.begin, one.size)));
}

namespace {

using List = FeatureLocation::List;

constexpr uint64_t kMaxLabel = 4096;  // size in bytes of the list of a label or a group

class ShardIndexer {
 public:
  ShardIndexer(const record::SampleSpec& spec, record::RecordIndexBuilder& index,
               files::ByteSource& shard)
      : spec_(spec), index_(index), shard_(shard), locations_(spec.names.size()) {}

  Status run() {
    for (uint64_t at = 0; at < shard_.size();) {
      STOKER_ASSIGN_OR_RETURN(const uint64_t length, length_at(at));
      files::PartSource data(shard_, at + kFrameHead, length);
      STOKER_RETURN_IF_ERROR(!spec_.is_sequence() ? add(at, data) : add_sequence(at, data));
      at += kFrameHead + length + kFrameTail;
    }
    return {};
  }

 private:
  // Memory of a value that is read.
  struct Value {
    std::vector<std::byte> bytes;
    std::vector<int64_t> ints;
    std::vector<float> floats;
  };

  Status wrong(uint64_t at, const Status& status) const { return index_.at(at, "", status); }
  // A record whose frame is right, so that the next one can be read.
  Status bad(uint64_t at, const Status& status) { return index_.add_bad(at, "", status); }

  Result<uint64_t> length_at(uint64_t at) {
    STOKER_ASSIGN_OR_RETURN(const auto head, shard_.peek(at, kFrameHead));
    if (at == 0) STOKER_RETURN_IF_ERROR(wrong(at, reject_other_kind(head, "a TFRecord file")));
    const auto cut = [&] { return wrong(at, Status(StatusCode::kCorrupt, "the file ends in it")); };
    if (head.size() < kFrameHead) return cut();
    const auto length = frame_length(head);
    if (!length) return wrong(at, at == 0 ? no_tfrecord(length.status()) : length.status());
    if (shard_.size() - at < kFrameHead + kFrameTail ||
        *length > shard_.size() - at - kFrameHead - kFrameTail)
      return cut();
    if (*length > kMaxTfrecordBytes) {
      return wrong(at, Status(StatusCode::kCorrupt, std::to_string(*length) +
                                                        " bytes, more than the limit of " +
                                                        std::to_string(kMaxTfrecordBytes)));
    }
    return length;
  }

  static Status no_tfrecord(const Status& status) {
    return Status(status.code(),
                  status.message() +
                      ": not a TFRecord file, or one that was written with a compression; "
                      "narrow the glob, or write it without");
  }

  Status add(uint64_t at, files::ByteSource& data) {
    if (const Status found = find_features(data, spec_.names, locations_); !found.ok())
      return bad(at, found);
    values_.assign(locations_.size(), record::FieldValue());
    for (size_t name = 0; name < locations_.size(); ++name)
      values_[name] = input_form(locations_[name]);
    uint64_t row[2] = {at, 0};
    if (spec_.is_text() && !record::is_missing(values_[0])) {
      const auto text = text_bytes(data);
      if (!text) return bad(at, text.status().with_context("text '" + spec_.names[0] + "'"));
      row[1] = *text;
    }
    const std::pair<std::optional<size_t>, Value*> parsed[] = {{spec_.label_value(), &label_},
                                                               {spec_.group_value(), &group_}};
    for (const auto& [value, memory] : parsed) {
      if (!value) continue;
      const Status read = read_value(data, *value, *memory);
      if (!read.ok())
        return bad(at, read.with_context(std::string(to_string(spec_.role_of(*value))) + " '" +
                                         spec_.names[*value] + "'"));
    }
    return index_.add(at, "", values_, std::span(row).first(tfrecord_row_width(spec_)));
  }

  Status add_sequence(uint64_t at, files::ByteSource& data) {
    STOKER_ASSIGN_OR_RETURN(const auto record, data.peek(0, data.size()));
    if (const Status found = example_.find(record, spec_); !found.ok()) return bad(at, found);
    values_.assign(spec_.names.size(), record::FieldValue());
    for (size_t name = 0; name < values_.size(); ++name) {
      const auto value = example_.value(spec_, name);
      if (!value) return bad(at, value.status());
      values_[name] = *value;
    }
    return index_.add(at, "", values_, {&at, 1});
  }

  // An empty value of the list's type, which is all that the index needs for most fields.
  static record::FieldValue input_form(const FeatureLocation& location) {
    switch (location.list) {
      case List::kBytes:
        return record::FieldBytes();
      case List::kFloats:
      case List::kSteps:
        return record::FieldFloats();
      case List::kInts:
        return record::FieldInts();
      case List::kMissing:
        break;
    }
    return {};
  }

  Result<uint64_t> text_bytes(files::ByteSource& data) const {
    if (locations_[0].list != List::kBytes)
      return Status(StatusCode::kCorrupt, "must be bytes, got a list of numbers");
    STOKER_ASSIGN_OR_RETURN(const ValueLocation text, find_one_bytes(data, locations_[0]));
    return text.size;
  }

  // A label or a group.
  Status read_value(files::ByteSource& data, size_t name, Value& value) {
    const FeatureLocation& location = locations_[name];
    if (location.list == List::kMissing) return {};
    if (location.list == List::kSteps)
      return Status(StatusCode::kCorrupt, "is a list of steps, but one value is needed");
    if (location.size > kMaxLabel)
      return Status(StatusCode::kCorrupt, "is " + std::to_string(location.size) + " bytes, no " +
                                              std::string(to_string(spec_.role_of(name))));
    STOKER_ASSIGN_OR_RETURN(const auto list, data.peek(location.begin, location.size));
    value.bytes.assign(list.begin(), list.end());
    if (location.list == List::kFloats) {
      STOKER_RETURN_IF_ERROR(decode_floats(value.bytes, value.floats));
      values_[name] = record::FieldFloats(value.floats);
    } else if (location.list == List::kInts) {
      STOKER_RETURN_IF_ERROR(decode_ints(value.bytes, value.ints));
      values_[name] = record::FieldInts(value.ints);
    } else {
      files::MemorySource source(value.bytes);
      STOKER_ASSIGN_OR_RETURN(
          const ValueLocation one,
          find_one_bytes(source, {.list = List::kBytes, .begin = 0, .size = value.bytes.size()}));
      values_[name] = record::FieldBytes(value.bytes).subspan(one.begin, one.size);
    }
    return {};
  }

  const record::SampleSpec& spec_;
  record::RecordIndexBuilder& index_;
  files::ByteSource& shard_;
  std::vector<FeatureLocation> locations_;
  std::vector<record::FieldValue> values_;
  ExampleValues example_;  // for sequences
  Value label_;
  Value group_;
};

}  // namespace

Status index_tfrecord_shard(const record::SampleSpec& spec, files::ByteSource& shard,
                            record::RecordIndexBuilder& index) {
  return ShardIndexer(spec, index, shard).run();
}

}  // namespace stoker::data::format
