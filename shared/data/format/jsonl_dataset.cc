// Format `jsonl`: files of JSON objects, one per line.
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "shared/data/format/format.h"
#include "shared/data/format/framed_records.h"
#include "shared/data/format/json_values.h"
#include "shared/data/format/text_records.h"

namespace stoker::data::format {
namespace {

class JsonFields final : public RecordFields {
 public:
  explicit JsonFields(const record::SampleSpec& spec)
      : RecordFields(spec),
        values_(spec.names, row_of(spec), std::nullopt,
                spec.has_messages() ? std::optional<size_t>(0) : std::nullopt,
                empty_lists_of(spec)) {}

  Status read(std::span<const std::byte> record, std::span<record::FieldValue> values,
              std::optional<size_t> /*maybe_known*/) override {
    const std::string_view line = record::to_string_view(record);
    Status read = values_.read(line, values);
    if (read.ok() || !record::trimmed(line).starts_with('[')) return read;
    return Status(read.code(), read.message() +
                                   "; it begins a JSON array: write one object per line, for "
                                   "example with jq -c '.[]'");
  }

 private:
  // Required length of nested lists; 0: any. Without the check, data of another shape would be
  // accepted.
  static uint64_t row_of(const record::SampleSpec& spec) {
    return spec.is_sequence() ? spec.values_per_step() : 0;
  }

  static std::vector<bool> empty_lists_of(const record::SampleSpec& spec) {
    std::vector<bool> can_be_empty(spec.names.size());
    for (size_t i = 0; i < can_be_empty.size(); ++i) can_be_empty[i] = spec.can_be_empty(i);
    return can_be_empty;
  }

  JsonValues values_;
};

}  // namespace

const FramedFormat& framed_jsonl() {
  static const FramedFormat kFormat{
      .name = "jsonl",
      .framing = line_framing(),
      .make_fields = [](const record::SampleSpec& spec) -> std::unique_ptr<RecordFields> {
        return std::make_unique<JsonFields>(spec);
      },
      .resolve =
          [](config::DatasetConfig& config) {
            auto& record = std::get<config::JsonlDataset>(config.source).record;
            record = with_shape(std::move(record));
          }};
  return kFormat;
}

const DatasetFormatOps& jsonl_format() {
  static constexpr DatasetFormatOps kFormatOps = framed_format_ops<framed_jsonl>("jsonl");
  return kFormatOps;
}

}  // namespace stoker::data::format
