// Format `tfrecord`: TFRecord files of tf.train.Example, with named features.
//
// Indexing reads frames, feature names and labels and skips everything else; records of sequences are read
// completely to determine their length. Each read reads the whole record and verifies its checksum.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/data/format/format.h"
#include "shared/data/format/framed_records.h"
#include "shared/data/format/tf_example.h"

namespace stoker::data::format {
namespace {

using List = FeatureLocation::List;
using record::FieldValue;

constexpr uint64_t kMaxLabel = 4096;  // size in bytes of the list of a label or a group

// An empty value of the list's type, which is all that the index needs for most fields.
FieldValue value_of_type(const FeatureLocation& location) {
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

// The features of one serialized Example. Time steps are concatenated; in a sequence, each step of the
// input must have the number of elements of the input's step, each step of another field one.
class ExampleFields final : public RecordFields {
 public:
  explicit ExampleFields(const record::SampleSpec& spec)
      : RecordFields(spec),
        locations_(spec.names.size()),
        bytes_(spec.names.size()),
        ints_(spec.names.size()),
        floats_(spec.names.size()) {}

  Status read(std::span<const std::byte> record, std::span<FieldValue> values,
              std::optional<size_t> maybe_known) override {
    files::MemorySource source(record);
    STOKER_RETURN_IF_ERROR(find_features(source, spec().names, locations_));
    for (size_t name = 0; name < values.size(); ++name) {
      if (name == maybe_known) continue;
      const FeatureLocation& location = locations_[name];
      auto value = decode(name, record.subspan(location.begin, location.size), location.list);
      if (!value) return value.status().with_context("feature '" + spec().names[name] + "'");
      values[name] = *value;
    }
    return {};
  }

  Result<uint64_t> scan(Framer& framer, const Frame& frame, std::span<FieldValue> values) override {
    files::PartSource record(framer.source(), frame.offset + kFrameHead,
                             frame.bytes - kFrameHead - kFrameTail);
    if (spec().is_sequence()) {
      STOKER_ASSIGN_OR_RETURN(const auto bytes, record.peek(0, record.size()));
      STOKER_RETURN_IF_ERROR(read(bytes, values, std::nullopt));
      return uint64_t{0};
    }
    STOKER_RETURN_IF_ERROR(find_features(record, spec().names, locations_));
    for (size_t name = 0; name < values.size(); ++name)
      values[name] =
          locations_[name].list == List::kMissing ? nothing(name) : value_of_type(locations_[name]);
    for (const auto& value : {spec().label_value(), spec().group_value()}) {
      if (!value) continue;
      const Status read = scan_value(record, *value, values[*value]);
      if (!read.ok()) return in_field(*value, read);
    }
    if (!spec().is_text() || locations_[0].list == List::kMissing) return uint64_t{0};
    if (locations_[0].list != List::kBytes)
      return in_field(0, corrupt_record("must be bytes, got a list of numbers"));
    const auto text = find_one_bytes(record, locations_[0]);
    if (!text) return in_field(0, text.status());
    return text->size;
  }

 private:
  Status in_field(size_t name, const Status& status) const {
    return status.with_context(std::string(to_string(spec().role_of(name))) + " '" +
                               spec().names[name] + "'");
  }

  // Of a feature without values.
  FieldValue nothing(size_t name) const {
    const FeatureLocation& location = locations_[name];
    const bool is_list = location.is_empty || location.list == List::kSteps;
    return is_list && spec().can_be_empty(name) ? FieldValue(record::FieldInts()) : FieldValue();
  }

  // A label or a group.
  Status scan_value(files::ByteSource& record, size_t name, FieldValue& value) {
    const FeatureLocation& location = locations_[name];
    if (location.list == List::kMissing) return {};
    if (location.list == List::kSteps)
      return corrupt_record("is a list of steps, but one value is needed");
    if (location.size > kMaxLabel)
      return corrupt_record("is " + std::to_string(location.size) + " bytes, no " +
                            std::string(to_string(spec().role_of(name))));
    STOKER_ASSIGN_OR_RETURN(const auto list, record.peek(location.begin, location.size));
    bytes_[name].assign(list.begin(), list.end());
    STOKER_ASSIGN_OR_RETURN(value, decode(name, bytes_[name], location.list));
    return {};
  }

  Result<FieldValue> decode(size_t name, std::span<const std::byte> list, List type) {
    if (spec().has_captions() && name == 1 && type != List::kMissing) {
      STOKER_RETURN_IF_ERROR(decode_texts(list, type, texts_));
      return FieldValue(std::as_bytes(std::span(texts_)));
    }
    if (type == List::kFloats) STOKER_RETURN_IF_ERROR(decode_floats(list, floats_[name]));
    if (type == List::kInts) STOKER_RETURN_IF_ERROR(decode_ints(list, ints_[name]));
    if (type == List::kSteps) {
      STOKER_ASSIGN_OR_RETURN(
          type, decode_steps(list, spec().is_sequence() ? spec().values_per_step(name) : 0,
                             floats_[name], ints_[name]));
    }
    if (type == List::kFloats) return FieldValue(record::FieldFloats(floats_[name]));
    if (type == List::kInts) return FieldValue(record::FieldInts(ints_[name]));
    if (type == List::kMissing) return nothing(name);
    files::MemorySource source(list);
    STOKER_ASSIGN_OR_RETURN(
        const ValueLocation one,
        find_one_bytes(source, {.list = List::kBytes, .begin = 0, .size = list.size()}));
    return FieldValue(record::FieldBytes(list.subspan(one.begin, one.size)));
  }

  // Of the last record, one per name.
  std::vector<FeatureLocation> locations_;
  std::vector<std::vector<std::byte>> bytes_;  // of scan()
  std::vector<std::vector<int64_t>> ints_;
  std::vector<std::vector<float>> floats_;
  std::string texts_;  // captions
};

}  // namespace

const FramedFormat& framed_tfrecord() {
  static const FramedFormat kFormat{
      .name = "tfrecord",
      .framing = tfrecord_framing(),
      .make_fields = [](const record::SampleSpec& spec) -> std::unique_ptr<RecordFields> {
        return std::make_unique<ExampleFields>(spec);
      }};
  return kFormat;
}

const DatasetFormatOps& tfrecord_format() {
  static constexpr DatasetFormatOps kFormatOps = framed_format_ops<framed_tfrecord>("tfrecord");
  return kFormatOps;
}

}  // namespace stoker::data::format
