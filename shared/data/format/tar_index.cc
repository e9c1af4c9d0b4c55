#include "shared/data/format/tar_index.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "shared/base/utf8.h"
#include "shared/data/file_kind.h"
#include "shared/data/format/json_values.h"
#include "shared/data/format/npy_value.h"

namespace stoker::data::format {
namespace {

TarField parse(std::string_view name) {
  TarField field;
  const size_t colon = std::min(name.find(':'), name.size());
  if (colon < name.size()) field.json_key = name.substr(colon + 1);
  std::string_view rest = name.substr(0, colon);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(';'), rest.size());
    if (end > 0) field.extensions.push_back(lower_case(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return field;
}

bool is_npy(const std::string& extension) {
  return extension == "npy" || extension.ends_with(".npy");
}

// Reports a configuration error if a field of arrays is combined with something that arrays do not
// support.
Status check_npy(const DatasetRequest& request, const record::SampleSpec& spec, size_t i,
                 const TarField& field) {
  const std::string name = "'" + spec.names[i] + "' ";
  if (!std::ranges::all_of(field.extensions, is_npy))
    return request.config_error(spec.key_of(i), name + "mixes arrays with other members");
  if (field.is_json())
    return request.config_error(spec.key_of(i), name + "is an array, and no JSON");
  if (spec.role_of(i) == record::FieldRole::kText)
    return request.config_error("fields.text", name + "is an array, and no text");
  if (spec.role_of(i) == record::FieldRole::kPriority)
    return request.config_error("fields.priority",
                                name + "is an array; set it to a text or json:KEY");
  if (spec.role_of(i) == record::FieldRole::kImage)
    return request.config_error("fields.image",
                                name + "is an array; name it in fields.input, with an input_shape");
  return {};
}

}  // namespace

std::optional<size_t> TarField::extension_rank(std::string_view extension) const {
  const auto found = std::ranges::find(extensions, extension);
  if (found == extensions.end()) return std::nullopt;
  return static_cast<size_t>(found - extensions.begin());
}

Result<std::vector<TarField>> tar_fields(const DatasetRequest& request,
                                         const record::SampleSpec& spec) {
  std::vector<TarField> parsed;
  for (size_t i = 0; i < spec.names.size(); ++i) {
    const std::string& name = spec.names[i];
    TarField field = parse(name);
    const bool is_cut = name.ends_with(':');
    if (field.extensions.empty() || is_cut) {
      return request.config_error(spec.key_of(i), "'" + name +
                                                      "' names no member; write its extension, "
                                                      "such as jpg;png, or json:KEY");
    }
    if (spec.is_text() && field.is_json())
      return request.config_error("fields.text", "must be a separate member, such as txt");
    field.is_label = spec.label_value() == i || spec.group_value() == i;
    field.is_priority = spec.role_of(i) == record::FieldRole::kPriority;
    field.is_caption = spec.has_captions() && i == 1;
    field.is_npy = std::ranges::any_of(field.extensions, is_npy);
    if (field.is_npy) STOKER_RETURN_IF_ERROR(check_npy(request, spec, i, field));
    parsed.push_back(std::move(field));
  }
  return parsed;
}

std::unique_ptr<JsonValues> TarField::make_json() const {
  return std::make_unique<JsonValues>(std::vector{json_key}, 0,
                                      is_caption ? std::optional<size_t>(0) : std::nullopt);
}

std::optional<TarName> split_tar_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', begin);
  if (dot == std::string_view::npos || dot == begin || dot + 1 == name.size()) return std::nullopt;
  return TarName{.key = name.substr(0, dot), .extension = name.substr(dot + 1)};
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

Status SequenceMember::read(const TarField& field, uint64_t values_per_step,
                            std::span<const std::byte> member, record::FieldValue& value) {
  value = record::FieldBytes(member);
  Status read;
  if (field.is_npy) read = read_npy_steps(member, values_per_step, value);
  if (field.is_json()) {
    json_ = std::make_unique<JsonValues>(std::vector{field.json_key}, values_per_step);
    read = json_->read(record::to_string_view(member), std::span(&value, 1));
  }
  return read.ok() ? read : read.with_context(field.extensions.front());
}

namespace {

constexpr uint64_t kMaxParsed = uint64_t{64} << 10;  // bytes of a label or a JSON member
constexpr size_t kShownKey = 256;
constexpr size_t kShownMembers = 16;

class TarIndexer {
 public:
  TarIndexer(const record::SampleSpec& spec, std::span<const TarField> tar_fields,
             files::ByteSource& shard, record::RecordIndexBuilder& index, TarIgnored& ignored)
      : spec_(spec),
        tar_fields_(tar_fields),
        shard_(shard),
        index_(index),
        ignored_(ignored),
        found_(tar_fields.size()),
        values_(tar_fields.size()),
        sequence_(tar_fields.size()) {
    for (const TarField& field : tar_fields)
      parsers_.push_back(field.is_json() ? field.make_json() : nullptr);
  }

  Status run() {
    STOKER_ASSIGN_OR_RETURN(const auto first, shard_.peek(0, kTarBlock));
    STOKER_RETURN_IF_ERROR(index_.in_shard(reject_other_kind(first, "a tar archive")));
    TarReader walk(shard_);
    for (TarMember member;;) {
      const auto more = walk.next(member);
      if (!more) return index_.in_shard(is_reported(more.status(), member));
      if (!*more) break;
      if (member.is_file || (member.is_link && is_wanted(member)))
        STOKER_RETURN_IF_ERROR(take(member));
    }
    STOKER_RETURN_IF_ERROR(end_sample());
    if (!walk.has_end_block()) ++ignored_.without_end;
    return {};
  }

 private:
  // The member found for one field of the sample.
  struct Found {
    bool is_there = false;
    bool is_link = false;
    size_t rank = 0;
    TarLocation location;
    std::string content;  // only if it is parsed
  };

  // If the first header is invalid, the file is probably not a tar file; a corrupt one is less
  // likely.
  static Status is_reported(const Status& status, const TarMember& last) {
    if (last.content != 0 || status.code() != StatusCode::kCorrupt) return status;
    return Status(status.code(), status.message() + "; if it is not a tar file, narrow the glob");
  }

  Status wrong(const std::string& what) const {
    return index_.at(first_header_, "sample " + quote_for_message(key_, kShownKey),
                     Status(StatusCode::kCorrupt, what));
  }

  // A link of which no field is read does no harm.
  bool is_wanted(const TarMember& member) const {
    const auto name = split_tar_name(member.name);
    return name && std::ranges::any_of(tar_fields_, [&](const TarField& field) {
             return field.extension_rank(lower_case(name->extension)).has_value();
           });
  }

  Status take(const TarMember& member) {
    const auto name = split_tar_name(member.name);
    if (!name) return ++ignored_.members, Status();
    if (members_.empty() || name->key != key_) {
      STOKER_RETURN_IF_ERROR(end_sample());
      key_ = name->key;
      first_header_ = member.header;
      if (key_.size() > kMaxTarKey)
        return wrong("its key has " + std::to_string(key_.size()) + " bytes");
    }
    std::string extension = lower_case(name->extension);
    if (std::ranges::find(members_, extension) != members_.end())
      return wrong("has two members " + quote_for_message(extension));
    if (members_.size() == kMaxTarMembers)
      return wrong("has more than " + std::to_string(kMaxTarMembers) + " members");
    for (size_t i = 0; i < tar_fields_.size(); ++i) {
      const auto rank = tar_fields_[i].extension_rank(extension);
      if (rank && (!found_[i].is_there || *rank < found_[i].rank))
        STOKER_RETURN_IF_ERROR(take_field(i, *rank, member));
    }
    members_.push_back(std::move(extension));
    return {};
  }

  Status take_field(size_t i, size_t rank, const TarMember& member) {
    const TarField& field = tar_fields_[i];
    const bool has_length = is_of_sequence(field);
    const bool is_parsed = has_length || field.is_label || field.is_json();
    const uint64_t max_elements = has_length        ? kMaxTarMember
                                  : is_parsed       ? kMaxParsed
                                  : spec_.is_text() ? TarLocation::kMaxCount - 1
                                                    : kMaxTarMember;
    if (member.size > max_elements || member.content / kTarBlock >= TarLocation::kMaxCount) {
      return wrong("its member of " + std::to_string(member.size) + " bytes is past the limit of " +
                   std::to_string(max_elements));
    }
    found_[i] = {.is_there = true,
                 .is_link = member.is_link,
                 .rank = rank,
                 .location = {.content = member.content, .size = member.size},
                 .content = {}};
    if (!is_parsed || member.is_link) return {};
    STOKER_ASSIGN_OR_RETURN(const auto bytes, shard_.peek(member.content, member.size));
    found_[i].content = record::to_string_view(bytes);
    return {};
  }

  Status end_sample() {
    if (members_.empty()) return {};
    std::vector<uint64_t>& row = row_;
    row.clear();
    Status valid;
    for (size_t i = 0; valid.ok() && i < tar_fields_.size(); ++i) {
      valid = value_of(i);
      if (!tar_fields_[i].is_label) row.push_back(found_[i].location.to_number());
    }
    Status added = valid.ok() ? index_.add(first_header_, what(), values_, row)
                              : index_.add_bad(first_header_, what(), valid);
    members_.clear();
    std::ranges::fill(found_, Found());
    return added;
  }

  // Whether the index needs the length of the value.
  bool is_of_sequence(const TarField& field) const {
    return spec_.is_sequence() && !field.is_label;
  }

  // Sets values_[i]. For values that are not parsed, the index only needs to know that they exist.
  Status value_of(size_t i) {
    const Found& found = found_[i];
    values_[i] = record::FieldValue();
    if (!found.is_there) return {};
    if (found.is_link) return link_in_tar(tar_fields_[i].extensions[found.rank]);
    values_[i] = std::as_bytes(std::span(found.content));
    if (is_of_sequence(tar_fields_[i])) {
      const Status read = sequence_[i].read(tar_fields_[i], spec_.values_per_step(i),
                                            std::as_bytes(std::span(found.content)), values_[i]);
      return read;
    }
    if (tar_fields_[i].is_npy) return npy_value_of(i);
    if (!tar_fields_[i].is_json()) return {};
    const Status read = parsers_[i]->read(found.content, std::span(&values_[i], 1));
    return read.with_context(tar_fields_[i].extensions[found.rank]);
  }

  // Labels are decoded. An input is a uint8 image or numbers; the first array of a shard decides
  // for all.
  Status npy_value_of(size_t i) {
    const Found& found = found_[i];
    if (tar_fields_[i].is_label) {
      const Status read = read_npy_label(std::as_bytes(std::span(found.content)), values_[i]);
      return read.with_context(tar_fields_[i].extensions[found.rank]);
    }
    if (i == 0 && !has_form_) {
      STOKER_ASSIGN_OR_RETURN(
          const auto head,
          shard_.peek(found.location.content, std::min(found.location.size, kMaxNpyHeader)));
      const auto bytes = npy_is_bytes(head, found.location.size);
      if (!bytes) return bytes.status().with_context(tar_fields_[i].extensions[found.rank]);
      has_bytes_ = *bytes;
      has_form_ = true;
    }
    if (!has_bytes_ || i > 0) values_[i] = record::FieldFloats(&kSomeNumber, 1);
    return {};
  }

  std::string what() const {
    std::string text = "sample " + quote_for_message(key_, kShownKey) + " (";
    for (size_t i = 0; i < std::min(members_.size(), kShownMembers); ++i)
      text += (i == 0 ? "" : " ") + quote_for_message(members_[i]);
    return text + (members_.size() > kShownMembers ? " …)" : ")");
  }

  static constexpr float kSomeNumber = 0;

  const record::SampleSpec& spec_;
  const std::span<const TarField> tar_fields_;
  files::ByteSource& shard_;
  record::RecordIndexBuilder& index_;
  TarIgnored& ignored_;
  std::vector<std::unique_ptr<JsonValues>> parsers_;  // null if the member itself is the value
  bool has_form_ = false;                             // the first array of the input was checked
  bool has_bytes_ = false;                            // the arrays are uint8 images
  // State of the current sample.
  std::string key_;
  uint64_t first_header_ = 0;
  std::vector<std::string> members_;  // their extensions
  std::vector<Found> found_;
  std::vector<record::FieldValue> values_;
  std::vector<SequenceMember> sequence_;
  std::vector<uint64_t> row_;
};

}  // namespace

Status index_tar_shard(const record::SampleSpec& spec, std::span<const TarField> tar_fields,
                       files::ByteSource& shard, record::RecordIndexBuilder& index,
                       TarIgnored& ignored) {
  return TarIndexer(spec, tar_fields, shard, index, ignored).run();
}

uint64_t tar_row_width(const record::SampleSpec& spec) {
  return spec.num_values() - (spec.label_value() ? 1 : 0);
}

}  // namespace stoker::data::format
